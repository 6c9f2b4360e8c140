#pragma once
#include <distgrad/core/error.hpp>
#include <distgrad/rpc/membership.hpp>

namespace distgrad {

DISTGRAD_DECL Membership::Membership(WorkerId self, std::vector<WorkerInfo> group)
    : self_(self), group_(std::move(group)) {
  for (auto const& worker : group_) by_name_.emplace(worker.name, worker.id.value);
}

DISTGRAD_DECL WorkerInfo const& Membership::resolve(WorkerRef const& ref) const {
  if (ref.is_name()) {
    if (auto const at = by_name_.find(ref.name()); at != by_name_.end()) return group_[at->second];
  } else if (ref.rank() >= 0 && ref.rank() < std::int64_t(group_.size())) {
    return group_[std::size_t(ref.rank())];
  }
  std::string text = ref.is_name() ? "could not find worker '" + std::string(ref.name()) + "'"
                                   : "could not find a worker of rank " + std::to_string(ref.rank());
  text += "; the group is";
  for (auto const& worker : group_) text += " '" + worker.name + "'";
  throw Error(errc::unknown_worker, text);
}

DISTGRAD_DECL std::string Membership::name(WorkerId id) const {
  return contains(id) ? group_[id.value].name : "rank " + to_string(id);
}

}  // namespace distgrad
