#pragma once
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace distgrad {

/// Rank of a worker in its group, 0 to world size - 1.
struct WorkerId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(WorkerId, WorkerId) = default;
};

/// A random number each engine draws when it starts, so that ids made before and after a restart
/// with the same rank differ.
struct Incarnation {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Incarnation, Incarnation) = default;
};

/// An id unique in the whole job: who made it, in which life, and a counter from 1. A
/// default-constructed id is invalid and stands for "none".
/// @tparam Tag makes ids of different things different types.
template <class Tag>
struct GlobalId {
  WorkerId worker;
  Incarnation incarnation;
  std::uint64_t sequence = 0;

  constexpr bool is_valid() const { return sequence != 0; }
  friend constexpr auto operator<=>(GlobalId const&, GlobalId const&) = default;
};

/// Names one distributed autograd context.
using ContextId = GlobalId<struct ContextTag>;
/// Pairs a send function with its recv function; made by the sender of the message.
using AutogradMessageId = GlobalId<struct AutogradMessageTag>;
/// Names one remote value; made by the worker that created the first reference to it.
using RRefId = GlobalId<struct RRefTag>;
/// Names one reference to a remote value; made by the worker that forked it.
using ForkId = GlobalId<struct ForkTag>;

/// Matches an answer with its call; unique among the calls of one engine.
struct CallId {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(CallId, CallId) = default;
};

/// Names one backward pass: context, the worker that called backward, and a counter of its passes
/// in that context, from 1.
struct PassId {
  ContextId context;
  WorkerId initiator;
  std::uint32_t sequence = 0;
  friend constexpr auto operator<=>(PassId const&, PassId const&) = default;
};

/// Makes the ids of one engine. @threads safe: shared object.
class IdSource {
 public:
  IdSource(WorkerId self, Incarnation incarnation) : self_(self), incarnation_(incarnation) {}

  template <class Id>
  Id next() {
    return Id{self_, incarnation_, counter_.fetch_add(1, std::memory_order_relaxed) + 1};
  }

 private:
  WorkerId self_;
  Incarnation incarnation_;
  std::atomic<std::uint64_t> counter_{0};
};

inline std::string to_string(WorkerId id) { return std::to_string(id.value); }

template <class Tag>
std::string to_string(GlobalId<Tag> const& id) {
  return std::to_string(id.worker.value) + "/" + std::to_string(id.incarnation.value) + "/" +
         std::to_string(id.sequence);
}

inline std::string to_string(PassId const& id) {
  return to_string(id.context) + "@" + to_string(id.initiator) + "#" + std::to_string(id.sequence);
}

inline std::ostream& operator<<(std::ostream& out, WorkerId id) { return out << to_string(id); }
inline std::ostream& operator<<(std::ostream& out, CallId id) { return out << id.value; }
inline std::ostream& operator<<(std::ostream& out, PassId const& id) {
  return out << to_string(id);
}
template <class Tag>
std::ostream& operator<<(std::ostream& out, GlobalId<Tag> const& id) {
  return out << to_string(id);
}

namespace detail {
constexpr std::size_t mix_hash(std::size_t seed, std::uint64_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2))) *
         0xff51afd7ed558ccdull;
}
}  // namespace detail

}  // namespace distgrad

template <>
struct std::hash<distgrad::WorkerId> {
  std::size_t operator()(distgrad::WorkerId id) const noexcept { return id.value; }
};
template <>
struct std::hash<distgrad::CallId> {
  std::size_t operator()(distgrad::CallId id) const noexcept { return id.value; }
};
template <class Tag>
struct std::hash<distgrad::GlobalId<Tag>> {
  std::size_t operator()(distgrad::GlobalId<Tag> const& id) const noexcept {
    auto const who = (std::uint64_t{id.worker.value} << 32) | id.incarnation.value;
    return distgrad::detail::mix_hash(distgrad::detail::mix_hash(0, who), id.sequence);
  }
};
template <>
struct std::hash<distgrad::PassId> {
  std::size_t operator()(distgrad::PassId const& id) const noexcept {
    auto const seed = std::hash<distgrad::ContextId>()(id.context);
    return distgrad::detail::mix_hash(seed,
                                      (std::uint64_t{id.initiator.value} << 32) | id.sequence);
  }
};
