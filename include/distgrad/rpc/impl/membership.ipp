#pragma once
#include <distgrad/core/error.hpp>
#include <distgrad/rpc/membership.hpp>

namespace distgrad {

DISTGRAD_DECL Membership::Membership(WorkerId self, std::vector<WorkerInfo> group)
    : self_(self), group_(std::move(group)) {
  for (auto const& worker : group_) by_name_.emplace(worker.name, worker.id.value);
}

DISTGRAD_DECL WorkerInfo const* Membership::find(WorkerRef const& ref) const {
  if (ref.is_name()) {
    auto const at = by_name_.find(ref.name());
    return at == by_name_.end() ? nullptr : &group_[at->second];
  }
  bool const is_rank = ref.rank() >= 0 && ref.rank() < std::int64_t(group_.size());
  return is_rank ? &group_[std::size_t(ref.rank())] : nullptr;
}

DISTGRAD_DECL WorkerInfo const& Membership::resolve(WorkerRef const& ref) const {
  auto const* const found = find(ref);
  if (!found) throw_error(errc::unknown_worker, why_unknown(ref));
  return *found;
}

DISTGRAD_DECL std::string Membership::why_unknown(WorkerRef const& ref) const {
  std::string text = ref.is_name()
                         ? "could not find worker '" + std::string(ref.name()) + "'"
                         : "could not find a worker of rank " + std::to_string(ref.rank());
  text += "; the group is";
  for (auto const& worker : group_) text += " '" + worker.name + "'";
  return text;
}

DISTGRAD_DECL std::string Membership::name(WorkerId id) const {
  return contains(id) ? group_[id.value].name : "rank " + to_string(id);
}

}  // namespace distgrad
