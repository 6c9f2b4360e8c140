#pragma once
#include <distgrad/autograd/recv_rpc_backward.hpp>
#include <distgrad/core/blocking.hpp>
#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/pass.hpp>
#include <distgrad/rpc/traffic.hpp>

#include <ATen/record_function.h>

namespace distgrad {
namespace detail {

inline bool is_recv_function(Node const& node) {
  return dynamic_cast<RecvRpcBackward const*>(&node) != nullptr;
}

inline Pass*& running_pass() {
  thread_local Pass* pass = nullptr;
  return pass;
}

/// Makes a pass the one whose nodes the thread runs.
class RunningPassScope {
 public:
  explicit RunningPassScope(Pass* pass) : before_(std::exchange(running_pass(), pass)) {}
  ~RunningPassScope() { running_pass() = before_; }
  RunningPassScope(RunningPassScope const&) = delete;
  RunningPassScope& operator=(RunningPassScope const&) = delete;

 private:
  Pass* before_;
};

}  // namespace detail

DISTGRAD_DECL Pass::Pass(RpcAgent& agent, Recorder& recorder, PassId id, ContextPtr context,
                         PassOptions options, std::chrono::nanoseconds patience)
    : agent_(agent),
      recorder_(recorder),
      id_(id),
      outermost_id_(id),
      context_(std::move(context)),
      options_(options),
      patience_(patience),
      protocol_(agent.membership().self().id, id.initiator, options),
      driving_(protocol_.is_initiator()),  // from now on, so that no status reads its executor
      probe_(agent.observer(), id, options.is_smart, protocol_.is_initiator()),
      executor_({options.retain_graph, options.create_graph, options.is_restricted},
                {&detail::is_recv_function,
                 [this](Node& recv, variable_list gradients, Lives lives) {
                   send_gradients(recv, std::move(gradients), std::move(lives));
                 }},
                agent.host().streams()) {}

DISTGRAD_DECL GradientMap Pass::run(std::span<at::Tensor const> roots,
                                    BackwardOptions const& options) {
  RECORD_FUNCTION("distgrad::backward", {});
  deadline_ = Deadline::after(options.timeout, agent_.host().clock().now());
  start(roots, options);
  if (options_.is_smart && !options_.is_overlapped) await_discovery();
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
  return take_gradients();
}

/// Feeds an event to the protocol and does what it says. The driver goes on last: it may end the
/// pass at once, and what the protocol said before has to be on its way then.
template <class Event>
void Pass::handle(Event&& event) {
  std::unique_lock lock(mutex_);
  auto const actions = event();
  auto const stopped = stop_if(actions.stop);
  lock.unlock();
  if (actions.stop) stop_nested();
  carry_out(actions);
  carry_out(stopped);
  if (actions.retire) retire();
}

DISTGRAD_DECL void Pass::retire() {
  std::unique_lock lock(mutex_);
  if (!protocol_.is_running()) return;
  inbox_.retires = true;
  wake_driver(lock, 0);
}

/// The lock is held. A driver that runs says itself when it has stopped.
DISTGRAD_DECL PassActions Pass::stop_if(bool stop) {
  if (!stop) return {};
  executor_.cancel();
  was_driving_ = driving_;
  return driving_ ? PassActions{} : protocol_.stopped();
}

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

// --- discovery -----------------------------------------------------------------------------------

/// What is wrong with the roots is thrown before any message leaves.
DISTGRAD_DECL void Pass::start(std::span<at::Tensor const> roots, BackwardOptions const& options) {
  handle([&] {
    join();
    for (auto const& input : options.inputs) executor_.keep(input);
    for (std::size_t i = 0; i < roots.size(); ++i) {
      executor_.add_root(roots[i],
                         i < options.gradients.size() ? options.gradients[i] : at::Tensor());
    }
    bool const may_wait = options_.is_overlapped && patience_.count() > 0 && expects_to_use_all();
    return options_.is_smart && !may_wait ? start_discovery() : PassActions{};
  });
}

/// The lock is held, as for all that walk the graph.
DISTGRAD_DECL void Pass::join() {
  if (std::exchange(expanded_, true)) return;
  if (!options_.is_smart || options_.is_overlapped) executor_.expand(context_->sends());
}

/// Whether every message this worker got in the context leads to the roots, as far as it can see.
DISTGRAD_DECL bool Pass::expects_to_use_all() {
  return executor_.take_reached().size() == context_->recvs().size();
}

DISTGRAD_DECL PassActions Pass::start_discovery() {
  return protocol_.start(
      follow(options_.is_overlapped ? executor_.mark_roots() : executor_.take_reached()));
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
    join();
    auto const fresh = protocol_.discover(from, frame.number, frame.messages);
    return protocol_.expanded(from, frame.number, walk(fresh));
  });
}

DISTGRAD_DECL void Pass::on_discovered(detail::DiscoveredFrame const& frame) {
  handle([&] { return protocol_.discovered(frame.number, frame.participants); });
}

DISTGRAD_DECL void Pass::on_release() {
  handle([&] { return protocol_.release(); });
}

DISTGRAD_DECL Reached Pass::walk(std::vector<AutogradMessageId> const& messages) {
  std::vector<node_ptr> sends;
  for (auto const message : messages) sends.push_back(send_function(message));
  return follow(explore(sends));
}

/// @return the recv functions that these lead to, and nothing did before.
DISTGRAD_DECL std::vector<Node*> Pass::explore(std::vector<node_ptr> const& sends) {
  if (sends.empty()) return {};
  if (options_.is_overlapped) return executor_.mark(sends);
  executor_.expand(sends);
  return executor_.take_reached();
}

/// Sorts recv functions by worker. Calls of this one to itself are followed on the spot.
DISTGRAD_DECL Reached Pass::follow(std::vector<Node*> nodes) {
  Reached others;
  while (!nodes.empty()) {
    std::vector<node_ptr> own;
    for (auto* node : nodes) {
      auto const& recv = static_cast<RecvRpcBackward const&>(*node);
      if (recv.from() == self()) {
        own.push_back(send_function(recv.id()));
      } else {
        others[recv.from()].push_back(recv.id());
      }
    }
    nodes = explore(own);
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
  for (std::optional<Work> work = Work{}; work; work = await_work()) try_slice(*work);
}

/// @return nothing when there is none any more.
DISTGRAD_DECL std::optional<Pass::Work> Pass::await_work() {
  auto const is_ready = [this] { return !protocol_.is_running() || has_work(); };
  std::unique_lock lock(mutex_);
  driving_ = false;
  if (options_.is_overlapped && !protocol_.has_started()) {
    auto const soon = Deadline::after(patience_, agent_.host().clock().now());
    if (!wait(lock, {std::min(soon.at, deadline_.at)}, is_ready)) {
      lock.unlock();
      handle([this] { return start_discovery(); });
      lock.lock();
    }
  }
  bool const is_in_time = wait(lock, deadline_, is_ready);
  if (!is_in_time) {
    lock.unlock();
    fail_late();
    return std::nullopt;
  }
  if (!protocol_.is_running()) return std::nullopt;
  driving_ = true;
  return std::exchange(inbox_, {});
}

/// A participant's loop: run until nothing has arrived any more.
DISTGRAD_DECL void Pass::drive() {
  while (true) {
    std::unique_lock lock(mutex_);
    if (!has_work() || !protocol_.is_running()) {
      driving_ = false;
      auto const stopped = protocol_.stopped();
      lock.unlock();
      return carry_out(stopped);
    }
    auto work = std::exchange(inbox_, {});
    lock.unlock();
    try {
      run_in_carrier(options_.retain_graph, options_.create_graph, [&] { try_slice(work); });
    } catch (...) {  // a final callback that a node queued
      fail_here(std::current_exception());
    }
  }
}

/// What a node throws stays inside the carrier, or that would be named in its stead.
DISTGRAD_DECL void Pass::try_slice(Work& work) {
  try {
    run_slice(work);
  } catch (...) {
    fail_here(std::current_exception());
  }
}

DISTGRAD_DECL void Pass::run_slice(Work& work) {
  for (auto& delivery : work.deliveries) {
    if (delivery.arrived) {
      delivery.arrived->follow();
      keep_on_streams(delivery.gradients, *agent_.host().streams());
    }
    executor_.inject(*send_function(delivery.message), std::move(delivery.gradients),
                     std::move(delivery.lives));
  }
  if (work.retires) executor_.retire();
  {
    detail::RunningPassScope const running(this);
    executor_.run_ready();
  }
  if (!executor_.is_complete()) return;
  if (!is_initiator() && !options_.commits_globally) merge();
  handle([this] { return protocol_.local_part_complete(); });
}

DISTGRAD_DECL GradientMap Pass::take_gradients() {
  auto gradients = executor_.take_gradients();
  std::lock_guard lock(mutex_);
  gradients.merge(std::exchange(adopted_, {}), options_.create_graph, agent_.host().streams());
  return gradients;
}

DISTGRAD_DECL void Pass::merge() {
  auto gradients = take_gradients();
  if (!publishes()) {
    if (auto const outermost = outermost_.lock()) outermost->adopt(std::move(gradients));
  } else if (options_.accumulate_grad) {
    gradients.add_to_grad(options_.create_graph);
  } else {
    context_->merge(std::move(gradients), options_.create_graph);
  }
}

DISTGRAD_DECL void Pass::on_gradient(WorkerId from, detail::GradientFrame frame) {
  std::unique_lock lock(mutex_);
  if (!protocol_.is_running() || !protocol_.gradient_received(from, frame.message)) return;
  probe_.gradient_received(from, frame.message);
  join();
  auto const send = send_function(frame.message);
  detail::bring_back(agent_.host(), *send, frame.gradients);
  if (frame.recorded.is_valid()) {
    auto differentiable = frame.differentiable();
    context_->add_recv(frame.recorded, from, differentiable);
  }
  auto* const streams = agent_.host().streams();
  inbox_.deliveries.push_back({frame.message, std::move(frame.gradients), std::move(frame.lives),
                               streams ? streams->mark() : nullptr});
  wake_driver(lock, send->sequence_nr());
}

/// Gives the lock back first, or who is woken would wait for it.
DISTGRAD_DECL void Pass::wake_driver(std::unique_lock<std::mutex>& lock, std::uint64_t priority) {
  bool const starts = !is_initiator() && !std::exchange(driving_, true);
  lock.unlock();
  if (is_initiator()) {
    changed_.notify_all();
  } else if (starts) {
    agent_.host().submit(priority, [self = shared_from_this()] { self->drive(); });
  }
}

DISTGRAD_DECL void Pass::send_gradients(Node& node, variable_list gradients, Lives lives) {
  auto const& recv = static_cast<RecvRpcBackward&>(node);
  auto const to = recv.from();
  if (to == self()) {
    auto const own = send_function(recv.id());
    detail::bring_back(agent_.host(), *own, gradients);
    return executor_.inject(*own, std::move(gradients), std::move(lives));
  }
  {
    std::lock_guard lock(mutex_);
    if (!protocol_.is_running()) return;  // nobody would stop whoever starts with these
    protocol_.gradient_sent(to);
  }
  auto message = detail::gradient_message(agent_.host(), id_, options_, recv.id(),
                                          record(to, gradients), gradients, lives);
  if (probe_) probe_.gradient_sent(to, recv.id(), frame_bytes(message));
  send(to, std::move(message));
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
  std::unique_lock lock(mutex_);
  bool const is_due = protocol_.awaits_commit();
  lock.unlock();
  if (is_due && options_.commits_globally) merge();
  handle([&] { return protocol_.commit(); });
}

DISTGRAD_DECL void Pass::on_committed(WorkerId from) {
  handle([&] { return protocol_.committed(from); });
}

}  // namespace distgrad
