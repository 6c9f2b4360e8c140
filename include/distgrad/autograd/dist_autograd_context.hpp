#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include <distgrad/autograd/gradient_map.hpp>
#include <distgrad/autograd/recv_rpc_backward.hpp>
#include <distgrad/autograd/send_rpc_backward.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// One worker's part of a distributed autograd context: what it sent and received in it, which
/// workers know it, and the gradients of this worker's leaves. @threads safe: shared object.
class DistAutogradContext {
 public:
  /// @param streams orders the devices of the engine; null if there are none.
  explicit DistAutogradContext(ContextId id, std::shared_ptr<StreamOrder> streams = nullptr)
      : id_(id), streams_(std::move(streams)) {}

  ContextId id() const { return id_; }

  /// Records that `tensors` leave for `to`. @return the new send function.
  node_ptr add_send(AutogradMessageId message, WorkerId to, std::span<at::Tensor const> tensors);
  /// Records that `tensors` came from `from`, and gives them a `grad_fn`.
  void add_recv(AutogradMessageId message, WorkerId from, std::span<at::Tensor> tensors);

  /// The send function of a message; null if there is none.
  node_ptr find_send(AutogradMessageId message) const;
  /// The recv function of a message; null if there is none.
  node_ptr find_recv(AutogradMessageId message) const;
  std::vector<node_ptr> sends() const;
  std::vector<node_ptr> recvs() const;

  void add_known_worker(WorkerId worker);
  std::set<WorkerId> known_workers() const;

  /// Adds the gradients of a finished pass.
  void merge(GradientMap&& gradients, bool create_graph = false);
  /// The gradient of a leaf of this worker; undefined if no pass reached it. On a device it is
  /// ready for the calling thread's current stream.
  at::Tensor gradient(at::Tensor const& variable) const;
  /// Leaf and gradient, in the order in which passes reached them.
  std::vector<GradientMap::Entry> gradients() const;

  /// Numbers the passes this worker starts in the context.
  std::uint32_t next_pass();

 private:
  using Nodes = std::unordered_map<AutogradMessageId, node_ptr>;

  ContextId id_;
  std::shared_ptr<StreamOrder> streams_;
  mutable std::mutex mutex_;
  Nodes sends_, recvs_;
  std::set<WorkerId> known_workers_;
  mutable GradientMap gradients_;
  std::uint32_t last_pass_ = 0;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/dist_autograd_context.ipp>
#endif
