#pragma once
#include <distgrad/autograd/dist_autograd_context.hpp>

namespace distgrad {
namespace detail {

inline std::vector<node_ptr> nodes_of(
    std::unordered_map<AutogradMessageId, node_ptr> const& nodes) {
  std::vector<node_ptr> all;
  all.reserve(nodes.size());
  for (auto const& [id, node] : nodes) all.push_back(node);
  return all;
}

}  // namespace detail

DISTGRAD_DECL node_ptr DistAutogradContext::add_send(AutogradMessageId message, WorkerId to,
                                                     std::span<at::Tensor const> tensors) {
  node_ptr node = make_node<SendRpcBackward>(message, to, tensors);
  std::lock_guard lock(mutex_);
  sends_.emplace(message, node);
  return node;
}

DISTGRAD_DECL void DistAutogradContext::add_recv(AutogradMessageId message, WorkerId from,
                                                 std::span<at::Tensor> tensors) {
  node_ptr node = make_node<RecvRpcBackward>(id_, message, from);
  RecvRpcBackward::attach(node, tensors);
  std::lock_guard lock(mutex_);
  recvs_.emplace(message, std::move(node));
}

DISTGRAD_DECL node_ptr DistAutogradContext::find_send(AutogradMessageId message) const {
  std::lock_guard lock(mutex_);
  auto const at = sends_.find(message);
  return at == sends_.end() ? node_ptr() : at->second;
}

DISTGRAD_DECL node_ptr DistAutogradContext::find_recv(AutogradMessageId message) const {
  std::lock_guard lock(mutex_);
  auto const at = recvs_.find(message);
  return at == recvs_.end() ? node_ptr() : at->second;
}

DISTGRAD_DECL std::vector<node_ptr> DistAutogradContext::sends() const {
  std::lock_guard lock(mutex_);
  return detail::nodes_of(sends_);
}

DISTGRAD_DECL std::vector<node_ptr> DistAutogradContext::recvs() const {
  std::lock_guard lock(mutex_);
  return detail::nodes_of(recvs_);
}

DISTGRAD_DECL void DistAutogradContext::add_known_worker(WorkerId worker) {
  std::lock_guard lock(mutex_);
  known_workers_.insert(worker);
}

DISTGRAD_DECL std::set<WorkerId> DistAutogradContext::known_workers() const {
  std::lock_guard lock(mutex_);
  return known_workers_;
}

DISTGRAD_DECL void DistAutogradContext::merge(GradientMap&& gradients, bool create_graph) {
  std::lock_guard lock(mutex_);
  gradients_.merge(std::move(gradients), create_graph, streams_.get());
}

DISTGRAD_DECL at::Tensor DistAutogradContext::gradient(at::Tensor const& variable) const {
  std::lock_guard lock(mutex_);
  return streams_ ? gradients_.find(variable, *streams_) : gradients_.find(variable);
}

DISTGRAD_DECL std::vector<GradientMap::Entry> DistAutogradContext::gradients() const {
  std::lock_guard lock(mutex_);
  if (streams_) gradients_.enter(*streams_);
  return gradients_.entries();
}

DISTGRAD_DECL std::uint32_t DistAutogradContext::next_pass() {
  std::lock_guard lock(mutex_);
  return ++last_pass_;
}

}  // namespace distgrad
