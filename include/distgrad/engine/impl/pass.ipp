#pragma once
#include <distgrad/autograd/recv_rpc_backward.hpp>
#include <distgrad/core/blocking.hpp>
#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/pass.hpp>

namespace distgrad {
namespace detail {

inline bool is_recv_function(Node const& node) {
  return dynamic_cast<RecvRpcBackward const*>(&node) != nullptr;
}

/// How long the initiator of a failed pass waits for the others to stop.
inline constexpr std::chrono::seconds abort_grace{1};

}  // namespace detail

DISTGRAD_DECL Pass::Pass(RpcAgent& agent, Recorder& recorder, PassId id, ContextPtr context,
                         PassOptions options)
    : agent_(agent),
      recorder_(recorder),
      id_(id),
      context_(std::move(context)),
      options_(options),
      protocol_(agent.membership().self().id, id.initiator, options.commits_globally),
      driving_(protocol_.is_initiator()),  // from now on, so that no status reads its executor
      executor_({options.retain_graph, options.create_graph, options.is_restricted},
                {&detail::is_recv_function, [this](Node& recv, variable_list gradients) {
                   send_gradients(recv, std::move(gradients));
                 }}) {}

DISTGRAD_DECL GradientMap Pass::run(std::span<at::Tensor const> roots,
                                    BackwardOptions const& options) {
  deadline_ = Deadline::after(options.timeout, agent_.host().clock().now());
  start(roots, options);
  if (options_.is_smart) await_discovery();
  std::exception_ptr error;
  try {
    run_in_carrier(options_.retain_graph, options_.create_graph, [this] { run_until_stopped(); });
  } catch (...) {  // a final callback that a node queued
    error = std::current_exception();
    fail_here(error);
  }
  await_end();
  throw_if_failed();
  if (error) std::rethrow_exception(error);
  return executor_.take_gradients();
}

/// Feeds an event to the protocol and does what it says.
template <class Event>
void Pass::handle(Event&& event) {
  std::unique_lock lock(mutex_);
  auto const actions = event();
  auto const stopped = stop_if(actions.stop);
  lock.unlock();
  carry_out(actions);
  carry_out(stopped);
}

/// The lock is held. A driver that runs says itself when it has stopped.
DISTGRAD_DECL PassActions Pass::stop_if(bool stop) {
  if (!stop) return {};
  executor_.cancel();
  was_driving_ = driving_;
  return driving_ ? PassActions{} : protocol_.stopped();
}

// --- discovery -----------------------------------------------------------------------------------

/// What is wrong with the roots is thrown before any message leaves.
DISTGRAD_DECL void Pass::start(std::span<at::Tensor const> roots, BackwardOptions const& options) {
  handle([&] {
    if (!options_.is_smart) executor_.expand(context_->sends());
    for (auto const& input : options.inputs) executor_.keep(input);
    for (std::size_t i = 0; i < roots.size(); ++i) {
      executor_.add_root(roots[i],
                         i < options.gradients.size() ? options.gradients[i] : at::Tensor());
    }
    expanded_ = true;
    return options_.is_smart ? protocol_.start(reached()) : PassActions{};
  });
}

DISTGRAD_DECL void Pass::await_discovery() {
  std::unique_lock lock(mutex_);
  bool const ended = wait(lock, deadline_, [this] {
    return protocol_.discovery().is_finished() || !protocol_.is_running();
  });
  lock.unlock();
  if (!ended) fail_late();
}

DISTGRAD_DECL void Pass::on_discover(WorkerId from, detail::DiscoverFrame const& frame) {
  handle([&] {
    auto const fresh = protocol_.discover(from, frame.number, frame.messages);
    return protocol_.expanded(from, frame.number, walk(fresh));
  });
}

DISTGRAD_DECL void Pass::on_discovered(detail::DiscoveredFrame const& frame) {
  handle([&] { return protocol_.discovered(frame.number, frame.participants); });
}

/// The lock is held, as for all that walk.
DISTGRAD_DECL Reached Pass::walk(std::vector<AutogradMessageId> const& messages) {
  std::vector<node_ptr> sends;
  for (auto const message : messages) sends.push_back(send_function(message));
  if (!sends.empty()) executor_.expand(sends);
  return reached();
}

/// What was reached since the last call. Calls of a worker to itself are followed on the spot.
DISTGRAD_DECL Reached Pass::reached() {
  Reached others;
  for (auto nodes = executor_.take_reached(); !nodes.empty(); nodes = executor_.take_reached()) {
    std::vector<node_ptr> own;
    for (auto* node : nodes) {
      auto const& recv = static_cast<RecvRpcBackward const&>(*node);
      if (recv.from() == self()) {
        own.push_back(send_function(recv.id()));
      } else {
        others[recv.from()].push_back(recv.id());
      }
    }
    executor_.expand(own);
  }
  return others;
}

DISTGRAD_DECL node_ptr Pass::send_function(AutogradMessageId message) const {
  if (auto send = context_->find_send(message)) return send;
  throw Error(errc::unknown_message, "a pass needs message " + to_string(message) +
                                         ", which worker '" + self_name() +
                                         "' did not send in the context");
}

// --- execution -----------------------------------------------------------------------------------

/// The initiator's loop: run what is ready, take what arrives, until its part is over.
DISTGRAD_DECL void Pass::run_until_stopped() {
  std::vector<Delivery> arrived;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (!protocol_.is_running()) return;
    }
    try {
      run_slice(std::exchange(arrived, {}));
    } catch (...) {
      fail_here(std::current_exception());
    }
    std::unique_lock lock(mutex_);
    driving_ = false;
    bool const is_in_time = wait(lock, deadline_, [this] {
      return !protocol_.is_running() || !inbox_.empty();
    });
    driving_ = true;
    arrived.swap(inbox_);
    lock.unlock();
    if (!is_in_time) fail_late();
  }
}

/// A participant's loop: run until nothing has arrived any more.
DISTGRAD_DECL void Pass::drive() {
  while (true) {
    std::unique_lock lock(mutex_);
    if (inbox_.empty() || !protocol_.is_running()) {
      driving_ = false;
      auto const stopped = protocol_.stopped();
      lock.unlock();
      return carry_out(stopped);
    }
    auto arrived = std::exchange(inbox_, {});
    lock.unlock();
    try {
      run_in_carrier(options_.retain_graph, options_.create_graph,
                     [&] { run_slice(std::move(arrived)); });
    } catch (...) {
      fail_here(std::current_exception());
    }
  }
}

DISTGRAD_DECL void Pass::run_slice(std::vector<Delivery> deliveries) {
  if (!std::exchange(expanded_, true) && !options_.is_smart) executor_.expand(context_->sends());
  for (auto& delivery : deliveries) {
    executor_.inject(*send_function(delivery.message), std::move(delivery.gradients));
  }
  executor_.run_ready();
  if (!executor_.is_complete()) return;
  if (!is_initiator() && !options_.commits_globally) merge();
  handle([this] { return protocol_.local_part_complete(); });
}

DISTGRAD_DECL void Pass::merge() {
  auto gradients = executor_.take_gradients();
  if (options_.accumulate_grad) {
    gradients.add_to_grad(options_.create_graph);
  } else {
    context_->merge(std::move(gradients), options_.create_graph);
  }
}

DISTGRAD_DECL void Pass::on_gradient(WorkerId from, detail::GradientFrame frame) {
  std::lock_guard lock(mutex_);
  if (!protocol_.is_running() || !protocol_.gradient_received(from, frame.message)) return;
  if (frame.recorded.is_valid()) context_->add_recv(frame.recorded, from, frame.differentiable);
  auto const send = context_->find_send(frame.message);
  inbox_.push_back({frame.message, std::move(frame.gradients)});
  if (is_initiator()) {
    changed_.notify_all();
  } else if (!std::exchange(driving_, true)) {
    agent_.host().submit(send ? send->sequence_nr() : 0,
                         [self = shared_from_this()] { self->drive(); });
  }
}

DISTGRAD_DECL void Pass::send_gradients(Node& node, variable_list gradients) {
  auto const& recv = static_cast<RecvRpcBackward&>(node);
  auto const to = recv.from();
  if (to == self()) return executor_.inject(*send_function(recv.id()), std::move(gradients));
  {
    std::lock_guard lock(mutex_);
    protocol_.gradient_sent(to);
  }
  send(to, detail::gradient_message(agent_.host(), id_, options_, recv.id(),
                                    record(to, gradients), gradients));
}

/// With create_graph, a gradient message is a message of the context like any other.
DISTGRAD_DECL AutogradMessageId Pass::record(WorkerId to, variable_list const& gradients) {
  if (!options_.create_graph) return {};
  std::vector<at::Tensor> differentiable;
  for (auto const& gradient : gradients) {
    if (gradient.defined() && gradient.requires_grad()) differentiable.push_back(gradient);
  }
  if (differentiable.empty()) return {};
  return recorder_.record_sent(*context_, to, differentiable);
}

DISTGRAD_DECL void Pass::on_done(WorkerId from, PassStatus const& last) {
  handle([&] { return protocol_.done(from, last); });
}

DISTGRAD_DECL void Pass::on_commit() {
  merge();
  handle([&] { return protocol_.commit(); });
}

DISTGRAD_DECL void Pass::on_committed(WorkerId from) {
  handle([&] { return protocol_.committed(from); });
}

// --- failure -------------------------------------------------------------------------------------

DISTGRAD_DECL void Pass::fail(WireError error) {
  handle([&] { return protocol_.failed(std::move(error)); });
}

DISTGRAD_DECL void Pass::fail_here(std::exception_ptr const& error) {
  auto report = describe(error, errc::pass_failed);
  fail({report.code, self_name(), executor_.current_node_name(), {}, std::move(report.text)});
}

DISTGRAD_DECL void Pass::fail_late() {
  fail({errc::timeout, self_name(), "backward", {},
        "the backward pass did not finish within BackwardOptions::timeout"});
}

DISTGRAD_DECL void Pass::on_peer_lost(WorkerId peer, error_code why) {
  WireError error{why, self_name(), {}, {},
                  "worker '" + agent_.membership().name(peer) +
                      "' was lost during the backward pass: " + why.message()};
  handle([&] { return protocol_.peer_lost(peer, std::move(error)); });
}

DISTGRAD_DECL void Pass::abandon(WireError error) {
  handle([&] { return protocol_.abandon(std::move(error)); });
}

DISTGRAD_DECL void Pass::on_abort(WorkerId from) {
  handle([&] { return protocol_.abort(from); });
}

DISTGRAD_DECL void Pass::on_aborted(WorkerId from, PassStatus last) {
  handle([&] { return protocol_.aborted(from, std::move(last)); });
}

/// At the initiator, when its own nodes are done or stopped: waits for what the others still do.
DISTGRAD_DECL void Pass::await_end() {
  handle([this] {
    driving_ = false;
    return protocol_.stopped();
  });
  auto const is_finished = [this] { return protocol_.is_finished(); };
  std::unique_lock lock(mutex_);
  bool const is_in_time = wait(lock, deadline_, [&] { return is_finished() || protocol_.error(); });
  lock.unlock();
  if (!is_in_time) fail_late();  // some did not commit
  lock.lock();
  auto const grace = Deadline::after(detail::abort_grace, agent_.host().clock().now());
  bool const all_stopped = wait(lock, grace, is_finished);
  lock.unlock();
  if (!all_stopped) abandon({});
}

/// Only at the end of the pass, when nothing of it changes any more.
DISTGRAD_DECL void Pass::throw_if_failed() const {
  if (!protocol_.error()) return;
  auto const& error = *protocol_.error();
  auto const text = error.text + awaited_text();
  if (error.worker.empty()) throw Error(error.code, text);
  throw RemoteError(error.code, error.worker, error.function, error.call, text);
}

// --- what others may know ------------------------------------------------------------------------

/// The lock is held.
DISTGRAD_DECL PassStatus Pass::status(std::uint32_t round) const {
  auto status = protocol_.own_status(round);
  if (driving_) return status;  // the executor is in use, so the part is not idle
  status.is_idle = inbox_.empty();
  if (was_driving_) status.node = executor_.last_node_name();
  for (auto* node : executor_.awaited_sends()) {
    auto const* send = static_cast<SendRpcBackward const*>(node);
    status.awaited.push_back({send->id(), send->to()});
  }
  return status;
}

DISTGRAD_DECL std::string Pass::awaited_text() const {
  constexpr std::size_t most_lines = 8;
  auto const name = [this](WorkerId worker) {
    return "worker '" + agent_.membership().name(worker) + "'";
  };
  std::vector<std::string> lines;
  auto words = protocol_.last_words();
  words.try_emplace(self(), status(0));
  for (auto const& [worker, status] : words) {
    if (!status.node.empty()) lines.push_back(name(worker) + " was running '" + status.node + "'");
    for (auto const& send : status.awaited) {
      lines.push_back(name(worker) + " waited for the gradients of message " +
                      to_string(send.message) + ", which it had sent to " + name(send.from));
    }
  }
  for (auto const worker : protocol_.unanswered()) {
    lines.push_back(name(worker) + " did not say that it stopped; a node or a hook that does not "
                                   "return may run there");
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < most_lines; ++i) text += "\n  " + lines[i];
  if (lines.size() > most_lines) {
    text += "\n  and " + std::to_string(lines.size() - most_lines) + " more";
  }
  return text;
}

DISTGRAD_DECL void Pass::on_query(WorkerId from, std::uint32_t round) {
  std::unique_lock lock(mutex_);
  auto const answer = status(round);
  lock.unlock();
  send(from, FrameKind::pass_status, [&](Writer& out) { detail::write_status(out, answer); });
}

DISTGRAD_DECL void Pass::on_status(WorkerId from, PassStatus const& answer) {
  handle([&] { return protocol_.status(from, answer); });
}

DISTGRAD_DECL void Pass::tick() {
  if (options_.is_smart) return;  // what takes part is known: a standstill cannot be
  std::uint32_t round = 0;
  handle([&] {
    auto const actions = protocol_.tick();
    round = actions.query_round;
    return actions;
  });
  if (round != 0) handle([&] { return protocol_.status(self(), status(round)); });
}

// --- messages ------------------------------------------------------------------------------------

/// Waits for `condition`, which others make come true. @return whether it did.
template <class Condition>
bool Pass::wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Condition condition) {
  while (!condition() && !deadline.has_passed(agent_.host().clock().now())) {
    lock.unlock();
    if (agent_.host().drive(deadline.at)) {
      lock.lock();
      continue;
    }
    BlockingRegion region;
    lock.lock();
    deadline.is_never() ? changed_.wait(lock, condition)
                        : void(changed_.wait_until(lock, deadline.at, condition));
  }
  return condition();
}

/// Sends what the protocol asked for; called without the lock.
DISTGRAD_DECL void Pass::carry_out(PassActions const& actions) {
  auto const with_status = [this](Writer& out) {
    std::lock_guard lock(mutex_);
    detail::write_status(out, status(0));
  };
  // Before anybody is told: whoever hears that the pass is over finds no trace of it here.
  if (actions.finished && on_finished_) std::exchange(on_finished_, nullptr)();
  for (auto const& discover : actions.discovery.discover) {
    send(discover.to, detail::discover_message(id_, options_, discover));
  }
  for (auto const& discovered : actions.discovery.discovered) {
    send(discovered.to, detail::discovered_message(id_, discovered));
  }
  if (actions.send_done) send(id_.initiator, FrameKind::pass_done, with_status);
  if (actions.send_failed) {
    send(id_.initiator, FrameKind::pass_failed,
         [&](Writer& out) { write_error(out, *protocol_.error()); });
  }
  if (actions.send_committed) send(id_.initiator, FrameKind::pass_committed);
  for (auto const worker : actions.commit) send(worker, FrameKind::pass_commit);
  for (auto const worker : actions.abort) send(worker, FrameKind::pass_abort);
  for (auto const worker : actions.aborted) send(worker, FrameKind::pass_aborted, with_status);
  for (auto const worker : actions.query) {
    send(worker, FrameKind::pass_query, [&](Writer& out) { out.number(actions.query_round); });
  }
  if (is_initiator()) changed_.notify_all();
}

DISTGRAD_DECL void Pass::send(WorkerId to, FrameKind kind, unique_function<void(Writer&)> write) {
  Writer out;
  out.id(id_);
  if (write) write(out);
  send(to, Message{.kind = kind, .metadata = out.take()});
}

DISTGRAD_DECL void Pass::send(WorkerId to, Message message) {
  agent_.host().send(to, std::move(message), [weak = weak_from_this(), to](error_code why) {
    auto const self = why ? weak.lock() : nullptr;
    if (self) self->on_peer_lost(to, why);
  });
}

}  // namespace distgrad
