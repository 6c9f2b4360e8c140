#pragma once
#include <distgrad/autograd/recv_rpc_backward.hpp>
#include <distgrad/core/blocking.hpp>
#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/pass.hpp>
#include <distgrad/engine/pass_frames.hpp>

namespace distgrad {
namespace detail {

inline bool is_recv_function(Node const& node) {
  return dynamic_cast<RecvRpcBackward const*>(&node) != nullptr;
}

}  // namespace detail

DISTGRAD_DECL Pass::Pass(RpcAgent& agent, PassId id, std::shared_ptr<DistAutogradContext> context,
                         Options options)
    : agent_(agent),
      id_(id),
      context_(std::move(context)),
      options_(options),
      protocol_(agent.membership().self().id, id.initiator),
      driving_(protocol_.is_initiator()),  // from now on, so that no status reads its executor
      executor_({options.retain_graph, options.create_graph},
                {&detail::is_recv_function, [this](Node& recv, variable_list gradients) {
                   send_gradients(recv, std::move(gradients));
                 }}) {}

DISTGRAD_DECL void Pass::run(std::span<at::Tensor const> roots, BackwardOptions const& options) {
  deadline_ = Deadline::after(options.timeout, agent_.host().clock().now());
  executor_.expand(context_->sends());
  for (std::size_t i = 0; i < roots.size(); ++i) {
    executor_.add_root(roots[i], i < options.gradients.size() ? options.gradients[i] : at::Tensor());
  }
  expanded_ = true;
  run_in_carrier(options_.retain_graph, options_.create_graph, [this] { run_until_finished(); });
  throw_if_failed();
  context_->merge(executor_.take_gradients(), options_.create_graph);
}

/// The initiator's loop: run what is ready, take what arrives, until the pass is over.
DISTGRAD_DECL void Pass::run_until_finished() {
  std::vector<Delivery> arrived;
  while (true) {
    try {
      inject(std::move(arrived));
      executor_.run_ready();
      if (executor_.is_complete()) complete_local_part();
    } catch (...) {
      fail_here(std::current_exception());
    }
    std::unique_lock lock(mutex_);
    if (!wait_for_work(lock)) return;
    arrived = std::exchange(inbox_, {});
  }
}

/// @return false when the pass is over.
DISTGRAD_DECL bool Pass::wait_for_work(std::unique_lock<std::mutex>& lock) {
  auto const ready = [this] { return protocol_.is_finished() || !inbox_.empty(); };
  driving_ = false;
  while (!ready() && !deadline_.has_passed(agent_.host().clock().now())) {
    lock.unlock();
    bool const drove = agent_.host().drive(deadline_.at);
    if (!drove) {
      BlockingRegion region;
      lock.lock();
      deadline_.is_never() ? changed_.wait(lock, ready)
                           : void(changed_.wait_until(lock, deadline_.at, ready));
    } else {
      lock.lock();
    }
  }
  if (!ready()) {
    lock.unlock();
    fail({errc::timeout, agent_.membership().self().name, "backward", {},
          "the backward pass did not finish before BackwardOptions::timeout"});
    lock.lock();
  }
  driving_ = true;
  return !protocol_.is_finished();
}

DISTGRAD_DECL void Pass::inject(std::vector<Delivery> deliveries) {
  for (auto& delivery : deliveries) {
    auto const send = context_->find_send(delivery.message);
    if (!send) {
      throw Error(errc::unknown_message,
                  "gradients arrived for message " + to_string(delivery.message) +
                      ", which this worker did not send in the context");
    }
    executor_.inject(*send, std::move(delivery.gradients));
  }
}

DISTGRAD_DECL void Pass::on_gradient(WorkerId from, AutogradMessageId message,
                                     variable_list gradients) {
  std::lock_guard lock(mutex_);
  if (protocol_.is_finished()) return;
  protocol_.gradient_received(from);
  inbox_.push_back({message, std::move(gradients)});
  if (is_initiator()) {
    changed_.notify_all();
  } else if (!std::exchange(driving_, true)) {
    auto const send = context_->find_send(message);
    agent_.host().submit(send ? send->sequence_nr() : 0,
                         [self = shared_from_this()] { self->drive(); });
  }
}

/// A participant's loop: run until nothing has arrived any more.
DISTGRAD_DECL void Pass::drive() {
  while (true) {
    std::vector<Delivery> arrived;
    {
      std::lock_guard lock(mutex_);
      if (inbox_.empty() || protocol_.is_finished()) {
        driving_ = false;
        return;
      }
      arrived.swap(inbox_);
    }
    try {
      run_in_carrier(options_.retain_graph, options_.create_graph,
                     [&] { run_slice(std::move(arrived)); });
    } catch (...) {
      fail_here(std::current_exception());
    }
  }
}

DISTGRAD_DECL void Pass::run_slice(std::vector<Delivery> deliveries) {
  if (!std::exchange(expanded_, true)) executor_.expand(context_->sends());
  inject(std::move(deliveries));
  executor_.run_ready();
  if (executor_.is_complete()) complete_local_part();
}

DISTGRAD_DECL void Pass::complete_local_part() {
  if (!is_initiator()) context_->merge(executor_.take_gradients(), options_.create_graph);
  std::unique_lock lock(mutex_);
  auto const actions = protocol_.local_part_complete();
  lock.unlock();
  carry_out(actions);
}

DISTGRAD_DECL void Pass::send_gradients(Node& node, variable_list gradients) {
  auto const& recv = static_cast<RecvRpcBackward&>(node);
  auto const self = agent_.membership().self().id;
  if (recv.from() == self) {
    if (auto const send = context_->find_send(recv.id())) {
      return executor_.inject(*send, std::move(gradients));
    }
    throw Error(errc::unknown_message, "the send function of a call to itself is gone");
  }
  {
    std::lock_guard lock(mutex_);
    protocol_.gradient_sent(recv.from());
  }
  auto message = detail::gradient_message(agent_.host(), id_, recv.id(), options_.retain_graph,
                                          options_.create_graph, gradients);
  agent_.host().send(
      recv.from(), std::move(message),
      [weak = weak_from_this(), to = recv.from(), name = agent_.membership().self().name,
       peer = agent_.membership().name(recv.from())](error_code code) {
        auto const self = code ? weak.lock() : nullptr;
        if (!self) return;
        self->fail({code, name, "RecvRpcBackward", {},
                    "gradients could not be sent to worker '" + peer + "': " + code.message()});
      });
}

DISTGRAD_DECL void Pass::fail_here(std::exception_ptr const& error) {
  auto report = describe(error, errc::pass_failed);
  fail({report.code, agent_.membership().self().name, executor_.current_node_name(), {},
        std::move(report.text)});
}

DISTGRAD_DECL void Pass::fail(WireError error) {
  std::unique_lock lock(mutex_);
  auto const actions = protocol_.failed(std::move(error));
  lock.unlock();
  carry_out(actions);
}

DISTGRAD_DECL void Pass::on_abort() {
  std::unique_lock lock(mutex_);
  auto const actions = protocol_.aborted();
  lock.unlock();
  carry_out(actions);
}

DISTGRAD_DECL void Pass::on_done(WorkerId from, PassStatus last) {
  std::unique_lock lock(mutex_);
  auto const actions = protocol_.done(from, std::move(last));
  lock.unlock();
  carry_out(actions);
}

/// The lock is held.
DISTGRAD_DECL PassStatus Pass::status(std::uint32_t round) const {
  auto status = protocol_.own_status(round);
  if (driving_) return status;  // the executor is in use, so the part is not idle
  status.is_idle = inbox_.empty();
  for (auto* node : executor_.awaited_sends()) {
    auto const* send = static_cast<SendRpcBackward const*>(node);
    status.awaited.push_back({send->id(), send->to()});
  }
  return status;
}

DISTGRAD_DECL void Pass::on_query(WorkerId from, std::uint32_t round) {
  std::unique_lock lock(mutex_);
  auto const answer = status(round);
  lock.unlock();
  send(from, FrameKind::pass_status, [&](Writer& out) { detail::write_status(out, answer); });
}

DISTGRAD_DECL void Pass::on_status(WorkerId from, PassStatus status) {
  std::unique_lock lock(mutex_);
  auto const actions = protocol_.status(from, std::move(status));
  lock.unlock();
  carry_out(actions);
}

DISTGRAD_DECL void Pass::tick() {
  std::unique_lock lock(mutex_);
  auto actions = protocol_.tick();
  if (actions.query_round == 0) return;
  auto const queries = actions.query;
  auto const own = protocol_.status(agent_.membership().self().id, status(actions.query_round));
  lock.unlock();
  carry_out(own);
  for (auto const worker : queries) {
    send(worker, FrameKind::pass_query,
         [&](Writer& out) { out.number(actions.query_round); });
  }
}

DISTGRAD_DECL bool Pass::involves(WorkerId worker) const {
  std::lock_guard lock(mutex_);
  return worker == id_.initiator || protocol_.participants().contains(worker) ||
         protocol_.peers().contains(worker) || context_->known_workers().contains(worker);
}

/// Sends what the protocol asked for; called without the lock.
DISTGRAD_DECL void Pass::carry_out(PassActions const& actions) {
  if (actions.finished && protocol_.error()) executor_.cancel();
  // Before anybody is told: whoever hears that the pass is over finds no trace of it here.
  if (actions.finished && on_finished_) std::exchange(on_finished_, nullptr)();
  if (actions.send_done) {
    auto const last = protocol_.own_status(0);  // final: this part is complete
    send(id_.initiator, FrameKind::pass_done,
         [&](Writer& out) { detail::write_status(out, last); });
  }
  if (actions.send_failed) {
    send(id_.initiator, FrameKind::pass_failed,
         [&](Writer& out) { write_error(out, *protocol_.error()); });
  }
  for (auto const worker : actions.abort) send(worker, FrameKind::pass_abort);
  if (actions.finished) changed_.notify_all();
}

DISTGRAD_DECL void Pass::send(WorkerId to, FrameKind kind, unique_function<void(Writer&)> write) {
  Writer out;
  out.id(id_);
  if (write) write(out);
  agent_.host().send(to, Message{.kind = kind, .metadata = out.take()});
}

DISTGRAD_DECL void Pass::throw_if_failed() const {
  std::lock_guard lock(mutex_);
  if (!protocol_.error()) return;
  auto const& error = *protocol_.error();
  if (error.worker.empty()) throw Error(error.code, error.text);
  throw RemoteError(error.code, error.worker, error.function, error.call, error.text);
}

}  // namespace distgrad
