#pragma once
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/worker_info.hpp>

namespace distgrad {

/// The group as every worker of it knows it: names, ranks, incarnations. Fixed once the group has
/// met. @threads safe: shared object.
class Membership {
 public:
  /// @param group in the order of ranks.
  Membership(WorkerId self, std::vector<WorkerInfo> group);

  WorkerInfo const& self() const { return group_[self_.value]; }
  std::span<WorkerInfo const> group() const { return group_; }
  bool contains(WorkerId id) const { return id.value < group_.size(); }

  /// The worker `ref` names, or null.
  WorkerInfo const* find(WorkerRef const& ref) const;
  /// What to say when there is none: lists the group's names.
  std::string why_unknown(WorkerRef const& ref) const;
  /// The worker `ref` names. @throws Error `unknown_worker`, listing the group's names.
  WorkerInfo const& resolve(WorkerRef const& ref) const;
  /// The name of `id`, or its rank as text if the group has no such worker.
  std::string name(WorkerId id) const;

 private:
  WorkerId self_;
  std::vector<WorkerInfo> group_;
  std::unordered_map<std::string_view, std::uint32_t> by_name_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/membership.ipp>
#endif
