#pragma once
#include <distgrad/engine/pass_table.hpp>

namespace distgrad {

DISTGRAD_DECL PassTable::PassTable(RpcAgent& agent, ContextTable& contexts, Recorder& recorder,
                                   Options options)
    : agent_(agent), contexts_(contexts), recorder_(recorder), options_(options) {
  auto& dispatcher = agent_.dispatcher();
  auto const on = [&](FrameKind kind, void (PassTable::*handle)(WorkerId, Message)) {
    dispatcher.on(
        kind, [this, handle](WorkerId from, Message m) { (this->*handle)(from, std::move(m)); });
  };
  auto const on_running = [&](FrameKind kind, void (*use)(Pass&, WorkerId, Reader&)) {
    dispatcher.on(kind, [this, use](WorkerId from, Message m) {
      with_pass(m, [&](Pass& pass, Reader& in) { use(pass, from, in); });
    });
  };
  on(FrameKind::pass_discover, &PassTable::on_discover);
  on(FrameKind::gradient, &PassTable::on_gradient);
  on(FrameKind::pass_failed, &PassTable::on_failed);
  on(FrameKind::pass_abort, &PassTable::on_abort);
  on(FrameKind::pass_query, &PassTable::on_query);
  on_running(FrameKind::pass_discovered, [](Pass& pass, WorkerId, Reader& in) {
    pass.on_discovered(detail::read_discovered(in));
  });
  on_running(FrameKind::pass_done, [](Pass& pass, WorkerId from, Reader& in) {
    pass.on_done(from, detail::read_status(in));
  });
  on_running(FrameKind::pass_aborted, [](Pass& pass, WorkerId from, Reader& in) {
    pass.on_aborted(from, detail::read_status(in));
  });
  on_running(FrameKind::pass_status, [](Pass& pass, WorkerId from, Reader& in) {
    pass.on_status(from, detail::read_status(in));
  });
  on_running(FrameKind::pass_release, [](Pass& pass, WorkerId, Reader&) { pass.on_release(); });
  on_running(FrameKind::pass_commit, [](Pass& pass, WorkerId, Reader&) { pass.on_commit(); });
  on_running(FrameKind::pass_committed,
             [](Pass& pass, WorkerId from, Reader&) { pass.on_committed(from); });
  dispatcher.on_peer_lost([this](WorkerId peer, error_code why) {
    {
      std::lock_guard lock(mutex_);
      lost_.insert(peer);
    }
    for (auto const& pass : all()) pass->on_peer_lost(peer, why);
  });
}

// --- passes that start here ----------------------------------------------------------------------

namespace detail {

inline void check_roots(std::span<at::Tensor const> roots, BackwardOptions const& options) {
  if (roots.empty()) throw Error(errc::invalid_root, "no tensors were given to backward");
  if (!options.gradients.empty() && options.gradients.size() != roots.size()) {
    throw Error(errc::invalid_argument,
                "backward got " + std::to_string(roots.size()) + " roots but " +
                    std::to_string(options.gradients.size()) + " gradients; give one per root");
  }
}

inline PassOptions pass_options(BackwardOptions const& options) {
  return {.is_smart = options.mode == BackwardMode::smart,
          .retain_graph = options.retain_graph || options.create_graph,
          .create_graph = options.create_graph,
          .accumulate_grad = options.accumulate_grad,
          .commits_globally = options.commit == GradientCommit::global,
          .is_restricted = !options.inputs.empty()};
}

}  // namespace detail

DISTGRAD_DECL void PassTable::backward(ContextId id, std::span<at::Tensor const> roots,
                                       BackwardOptions const& options) {
  auto const context = contexts_.get(id);
  detail::check_roots(roots, options);
  auto gradients = run(context, roots, options, detail::pass_options(options));
  if (options.accumulate_grad) {
    gradients.add_to_grad(options.create_graph);
  } else {
    context->merge(std::move(gradients), options.create_graph);
  }
}

DISTGRAD_DECL std::vector<at::Tensor> PassTable::grad(ContextId id,
                                                      std::span<at::Tensor const> roots,
                                                      std::vector<at::Tensor> const& inputs,
                                                      BackwardOptions options) {
  auto const context = contexts_.get(id);
  if (inputs.empty()) throw Error(errc::invalid_argument, "no inputs were given to grad");
  detail::check_roots(roots, options);
  options.inputs = inputs;
  options.accumulate_grad = false;
  options.commit = GradientCommit::local;
  auto const found = run(context, roots, options, detail::pass_options(options));
  std::vector<at::Tensor> gradients;
  for (auto const& input : inputs) gradients.push_back(found.find(input));
  return gradients;
}

DISTGRAD_DECL GradientMap PassTable::run(ContextPtr const& context,
                                         std::span<at::Tensor const> roots,
                                         BackwardOptions const& options, PassOptions pass_options,
                                         NestedPass* nested) {
  auto const self = agent_.membership().self().id;
  PassId const id{context->id(), self, context->next_pass()};
  pass_options.is_overlapped = pass_options.is_smart && id.sequence == 1 && !nested;
  auto const pass = add(id, context, pass_options);
  struct Guard {  // a throw before the protocol ran leaves the pass unfinished
    PassTable& table;
    PassId id;
    error_code why = errc::invalid_root;
    ~Guard() { table.finished(id, why); }
  } guard{*this, id};
  if (!pass_options.is_smart) {
    {
      std::lock_guard lock(mutex_);
      if (!next_tick_) next_tick_ = agent_.host().clock().now() + options_.watchdog_interval;
    }
    agent_.host().wake();
  }
  if (nested) pass->nest(*nested);
  auto gradients = pass->run(roots, options);
  guard.why = {};
  if (nested) pass->finish_nested(*nested, std::exchange(gradients, {}));
  return gradients;
}

/// In SMART mode whatever the outer pass's is: the context has calls that belong to that one.
DISTGRAD_DECL void PassTable::run_nested(NestedPass& part) {
  BackwardOptions options;
  options.gradients = part.gradients;
  options.timeout = part.outer->time_left();
  auto pass_options = part.outer->options();
  pass_options.is_smart = true;
  pass_options.is_nested = true;
  run(part.outer->context(), part.roots, options, pass_options, &part);
}

// --- messages ------------------------------------------------------------------------------------

/// For messages with which a worker first hears of a pass. The initiator learns of what goes wrong.
template <class Use>
void PassTable::join(Message const& message, Use&& use) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  try {
    use(id, in);
  } catch (...) {
    auto const error = error_here(std::current_exception());
    if (auto const pass = find(id)) return pass->fail(error);
    answer(id.initiator, FrameKind::pass_failed, id, [&](Writer& out) { write_error(out, error); });
  }
}

DISTGRAD_DECL void PassTable::on_discover(WorkerId from, Message message) {
  join(message, [&](PassId const& id, Reader& in) {
    auto const frame = detail::read_discover(in);
    auto const pass = find_or_join(id, frame.options);
    if (!pass) return;
    if (frame.options.is_nested) pass->belong_to(frame.outermost, find(frame.outermost));
    pass->on_discover(from, frame);
  });
}

DISTGRAD_DECL void PassTable::on_gradient(WorkerId from, Message message) {
  join(message, [&](PassId const& id, Reader& in) {
    auto frame = detail::read_gradient(agent_.host(), in, message.buffers);
    auto const pass = frame.options.is_smart && !frame.options.is_overlapped
                          ? find(id)
                          : find_or_join(id, frame.options);
    if (pass) return pass->on_gradient(from, std::move(frame));
    if (!is_over(id)) {
      throw Error(errc::bad_message, "gradients came for a pass nobody told this worker of");
    }
  });
}

/// For messages of a pass this worker takes part in; without it they mean nothing any more.
template <class Use>
void PassTable::with_pass(Message const& message, Use&& use) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  auto const pass = in.ok() ? find(id) : nullptr;
  if (!pass) return;
  try {
    use(*pass, in);
  } catch (...) {
    pass->fail(error_here(std::current_exception()));
  }
}

DISTGRAD_DECL void PassTable::on_failed(WorkerId from, Message message) {
  with_pass(message, [&](Pass& pass, Reader& in) { pass.on_failed(from, read_error(in)); });
  Reader in(message.metadata);
  auto const id = in.id<PassId>();  // it waits for an end, which it may have missed
  if (in.ok() && !find(id)) answer(from, FrameKind::pass_abort, id);
}

DISTGRAD_DECL void PassTable::on_abort(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  if (!in.ok()) return;
  remember_finished(id);  // messages of it may still be on their way here
  if (auto const pass = find(id)) return pass->on_abort(from);
  answer(from, FrameKind::pass_aborted, id, [](Writer& out) { detail::write_status(out, {}); });
}

DISTGRAD_DECL void PassTable::on_query(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const id = in.id<PassId>();
  auto const round = in.number<std::uint32_t>();
  if (!in.ok()) return;
  if (auto const pass = find(id)) return pass->on_query(from, round);
  // The gradients with which it hears of the pass may be on their way: that is not idle. Without
  // an answer the round would never be complete.
  PassStatus status;
  status.round = round;
  answer(from, FrameKind::pass_status, id, [&](Writer& out) { detail::write_status(out, status); });
}

DISTGRAD_DECL void PassTable::answer(WorkerId to, FrameKind kind, PassId const& id,
                                     unique_function<void(Writer&)> write) {
  Writer out;
  out.id(id);
  if (write) write(out);
  agent_.host().send(to, Message{.kind = kind, .metadata = out.take()});
}

DISTGRAD_DECL WireError PassTable::error_here(std::exception_ptr const& error) const {
  auto report = describe(error, errc::pass_failed);
  return {report.code, agent_.membership().self().name, {}, {}, std::move(report.text)};
}

// --- the passes ----------------------------------------------------------------------------------

DISTGRAD_DECL PassTable::PassPtr PassTable::add(PassId const& id, ContextPtr context,
                                                PassOptions options) {
  auto pass = std::make_shared<Pass>(agent_, recorder_, id, std::move(context), options,
                                     options_.discovery_delay);
  pass->on_finished([this, id] { finished(id); });
  pass->on_nested([this](NestedPass& part) { run_nested(part); });
  std::lock_guard lock(mutex_);
  if (!passes_.contains(id)) bounds::passes.require_room(passes_.size());
  return passes_.try_emplace(id, std::move(pass)).first->second;
}

DISTGRAD_DECL PassTable::PassPtr PassTable::find(PassId const& id) const {
  std::lock_guard lock(mutex_);
  auto const at = passes_.find(id);
  return at == passes_.end() ? nullptr : at->second;
}

/// @return null if the pass is over.
DISTGRAD_DECL PassTable::PassPtr PassTable::find_or_join(PassId const& id, PassOptions options) {
  if (auto pass = find(id)) return pass;
  if (is_over(id)) return nullptr;
  return add(id, contexts_.get(id.context), options);
}

DISTGRAD_DECL std::vector<PassTable::PassPtr> PassTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<PassPtr> passes;
  for (auto const& [id, pass] : passes_) passes.push_back(pass);
  return passes;
}

DISTGRAD_DECL bool PassTable::is_over(PassId const& id) const {
  if (id.initiator == agent_.membership().self().id) return !find(id);
  std::lock_guard lock(mutex_);
  if (lost_.contains(id.initiator)) return true;
  auto const context = finished_.find(id.context);
  if (context == finished_.end()) return false;
  auto const of = context->second.find(id.initiator);
  if (of == context->second.end()) return false;
  auto const& numbers = of->second;
  return numbers.contains(id.sequence) ||
         (numbers.size() == max_finished && id.sequence < *numbers.begin());
}

DISTGRAD_DECL void PassTable::finished(PassId const& id, error_code const& fallback) {
  PassPtr pass;  // goes after the lock
  {
    std::lock_guard lock(mutex_);
    auto entry = passes_.extract(id);
    if (!entry) return;
    pass = std::move(entry.mapped());
  }
  pass->end_watch(fallback);
  remember_finished(id);
}

DISTGRAD_DECL void PassTable::remember_finished(PassId const& id) {
  if (id.initiator == agent_.membership().self().id) return;
  std::lock_guard lock(mutex_);
  if (!contexts_.find(id.context)) return;
  auto& numbers = finished_[id.context][id.initiator];
  numbers.insert(id.sequence);
  if (numbers.size() > max_finished) numbers.erase(numbers.begin());
}

DISTGRAD_DECL void PassTable::release(ContextId context) {
  for (auto const& pass : all()) {
    if (pass->id().context != context) continue;
    pass->fail({errc::unknown_context,
                agent_.membership().self().name,
                {},
                {},
                "the context was released during the backward pass"});
  }
  std::lock_guard lock(mutex_);
  finished_.erase(context);
}

DISTGRAD_DECL void PassTable::close() {
  for (auto const& pass : all()) {
    pass->abandon({errc::closed,
                   agent_.membership().self().name,
                   {},
                   {},
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
    next_tick_ = now + options_.watchdog_interval;
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

DISTGRAD_DECL std::vector<PassRecord> PassTable::records() const {
  std::vector<PassRecord> records;
  for (auto const& pass : all()) records.push_back(pass->record());
  return records;
}

}  // namespace distgrad
