#pragma once
#include <distgrad/engine/pass_frames.hpp>
#include <distgrad/engine/pass_table.hpp>

namespace distgrad {

DISTGRAD_DECL PassTable::PassTable(RpcAgent& agent, ContextTable& contexts,
                                   std::chrono::nanoseconds watchdog_interval)
    : agent_(agent), contexts_(contexts), watchdog_interval_(watchdog_interval) {
  auto& dispatcher = agent_.dispatcher();
  dispatcher.on(FrameKind::gradient,
                [this](WorkerId from, Message m) { on_gradient(from, std::move(m)); });
  dispatcher.on(FrameKind::pass_done, [this](WorkerId from, Message m) {
    with_pass(m, [from](Pass& pass, Reader& in) { pass.on_done(from, detail::read_status(in)); });
  });
  dispatcher.on(FrameKind::pass_failed, [this](WorkerId, Message m) {
    with_pass(m, [](Pass& pass, Reader& in) { pass.fail(read_error(in)); });
  });
  dispatcher.on(FrameKind::pass_abort, [this](WorkerId, Message m) {
    with_pass(m, [](Pass& pass, Reader&) { pass.on_abort(); });
    Reader in(m.metadata);
    remember_finished(in.id<PassId>());  // its gradients may still be on their way here
  });
  dispatcher.on(FrameKind::pass_query, [this](WorkerId from, Message m) {
    with_pass(m, [from](Pass& pass, Reader& in) { pass.on_query(from, in.number<std::uint32_t>()); });
  });
  dispatcher.on(FrameKind::pass_status, [this](WorkerId from, Message m) {
    with_pass(m, [from](Pass& pass, Reader& in) { pass.on_status(from, detail::read_status(in)); });
  });
  dispatcher.on_peer_lost([this](WorkerId peer, error_code why) {
    for (auto const& pass : all()) {
      if (!pass->involves(peer)) continue;
      pass->fail({why, agent_.membership().self().name, {}, {},
                  "worker '" + agent_.membership().name(peer) +
                      "' was lost during the backward pass: " + why.message()});
    }
  });
}

DISTGRAD_DECL void PassTable::backward(std::shared_ptr<DistAutogradContext> const& context,
                                       std::span<at::Tensor const> roots,
                                       BackwardOptions const& options) {
  auto const self = agent_.membership().self().id;
  PassId const id{context->id(), self, context->next_pass()};
  auto const pass = add(id, context, {options.retain_graph, false});
  struct Guard {  // a throw before the protocol ran leaves the pass unfinished
    PassTable& table;
    PassId id;
    ~Guard() { table.finished(id); }
  } guard{*this, id};
  {
    std::lock_guard lock(mutex_);
    if (!next_tick_) next_tick_ = agent_.host().clock().now() + watchdog_interval_;
  }
  agent_.host().wake();
  pass->run(roots, options);
}

DISTGRAD_DECL PassTable::PassPtr PassTable::add(PassId const& id,
                                                std::shared_ptr<DistAutogradContext> context,
                                                Pass::Options options) {
  auto pass = std::make_shared<Pass>(agent_, id, std::move(context), options);
  pass->on_finished([this, id] { finished(id); });
  std::lock_guard lock(mutex_);
  return passes_.try_emplace(id, std::move(pass)).first->second;
}

DISTGRAD_DECL PassTable::PassPtr PassTable::find(PassId const& id) const {
  std::lock_guard lock(mutex_);
  auto const at = passes_.find(id);
  return at == passes_.end() ? nullptr : at->second;
}

DISTGRAD_DECL PassTable::PassPtr PassTable::find_or_join(PassId const& id, bool retain_graph,
                                                         bool create_graph) {
  if (auto pass = find(id)) return pass;
  {
    std::lock_guard lock(mutex_);
    auto const over = finished_.find(id.context);
    if (over != finished_.end() && over->second.contains(id)) return nullptr;
  }
  if (id.initiator == agent_.membership().self().id) return nullptr;  // it would be here
  return add(id, contexts_.get(id.context), {retain_graph, create_graph});
}

DISTGRAD_DECL void PassTable::on_gradient(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  try {
    auto frame = detail::read_gradient(agent_.host(), in, message.buffers);
    if (auto const pass = find_or_join(id, frame.retain_graph, frame.create_graph)) {
      pass->on_gradient(from, frame.message, std::move(frame.gradients));
    }
  } catch (...) {
    auto report = describe(std::current_exception());
    WireError const error{report.code, agent_.membership().self().name, {}, {}, report.text};
    if (auto const pass = find(id)) return pass->fail(error);
    Writer out;
    out.id(id);
    write_error(out, error);
    agent_.host().send(id.initiator,
                       Message{.kind = FrameKind::pass_failed, .metadata = out.take()});
  }
}

template <class Use>
void PassTable::with_pass(Message const& message, Use&& use) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  auto const pass = in.ok() ? find(id) : nullptr;
  if (!pass) return;
  try {
    use(*pass, in);
  } catch (...) {  // malformed
    auto report = describe(std::current_exception());
    pass->fail({report.code, agent_.membership().self().name, {}, {}, std::move(report.text)});
  }
}

DISTGRAD_DECL std::vector<PassTable::PassPtr> PassTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<PassPtr> passes;
  for (auto const& [id, pass] : passes_) passes.push_back(pass);
  return passes;
}

DISTGRAD_DECL void PassTable::finished(PassId const& id) {
  PassPtr pass;  // goes after the lock
  {
    std::lock_guard lock(mutex_);
    auto entry = passes_.extract(id);
    if (!entry) return;
    pass = std::move(entry.mapped());
  }
  remember_finished(id);
}

DISTGRAD_DECL void PassTable::remember_finished(PassId const& id) {
  std::lock_guard lock(mutex_);
  if (contexts_.find(id.context)) finished_[id.context].insert(id);
}

DISTGRAD_DECL void PassTable::release(ContextId context) {
  for (auto const& pass : all()) {
    if (pass->id().context != context) continue;
    pass->fail({errc::unknown_context, agent_.membership().self().name, {}, {},
                "the context was released during the backward pass"});
  }
  std::lock_guard lock(mutex_);
  finished_.erase(context);
}

DISTGRAD_DECL void PassTable::close() {
  for (auto const& pass : all()) {
    pass->fail({errc::closed, agent_.membership().self().name, {}, {},
                "the engine was shut down during the backward pass"});
  }
}

DISTGRAD_DECL void PassTable::tick(time_point now) {
  {
    std::lock_guard lock(mutex_);
    if (!next_tick_ || now < *next_tick_) return;
    if (passes_.empty()) {
      next_tick_.reset();
      return;
    }
    next_tick_ = now + watchdog_interval_;
  }
  for (auto const& pass : all()) pass->tick();
}

DISTGRAD_DECL std::optional<time_point> PassTable::next_tick() const {
  std::lock_guard lock(mutex_);
  return next_tick_;
}

DISTGRAD_DECL std::size_t PassTable::size() const {
  std::lock_guard lock(mutex_);
  return passes_.size();
}

}  // namespace distgrad
