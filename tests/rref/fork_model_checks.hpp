#pragma once
// What fork_model.hpp checks after a step and at the end, how it names a step, and how it tells
// worlds apart.
#include <algorithm>

#include "fork_model.hpp"

namespace fork_model {

inline void World::check() const {
  for (auto const& value : values_)
    if (!is_crashed(value.owner)) check_value(value);
}

inline void World::check_duplicates() const {
  for (auto const& packet : delivered_)
    if (packet.to == changed_) check_duplicate(packet);
}

inline void World::check_value(Value const& value) const {
  auto const& owner = at(value.owner);
  auto const forks = owner.forks(value.rref);
  std::size_t owner_handles = 0;
  bool is_expected = false;  // a descendant the owner may not know
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    auto const& handle = handles_[i];
    auto const place = script_->place(i);
    if (handle.rref != value.rref || is_crashed(place)) continue;
    bool const is_alive = handle.status == Handle::Status::alive;
    if (is_alive && handle.is_owner) ++owner_handles;
    if (handle.status == Handle::Status::travelling) is_expected = true;
    if (handle.is_owner || handle.status == Handle::Status::unborn) continue;
    auto const state = at(place).state(handle.fork);
    if (state == ForkState::pending) is_expected = true;
    if (!is_alive) continue;
    require(state != ForkState::deleted, "a live reference was forgotten");
    bool const is_known = std::ranges::find(forks, handle.fork) != forks.end();
    require(state != ForkState::confirmed || is_known, "the owner dropped a live reference");
    require(state != ForkState::confirmed || handle.is_confirmed, "nobody heard of a confirmation");
    require(state != ForkState::confirmed || !value.was_freed, "a live reference to nothing");
    require(state != ForkState::confirmed || value.was_made || value.has_failed || !is_quiet(),
            "a live reference to a value that nobody will make");
  }
  require(owner.handles(value.rref) == owner_handles, "the owner miscounts its handles");
  require(owner_handles == 0 || !value.was_freed, "a value was freed that its owner holds");
  if (crashed_ < 0 && is_expected && value.was_made)
    require(!forks.empty() && !value.was_freed,
            "no fork is left, but a descendant is yet to be registered");
}

inline bool World::is_quiet() const {
  auto const notices = transitions();
  return network_.empty() && std::ranges::none_of(notices, [](Transition t) {
           return t.kind == Transition::Kind::notice;
         });
}

inline void World::check_duplicate(Packet const& packet) const {
  auto worker = at(packet.to);
  auto const& control = packet.control;
  if (packet.kind == Packet::Kind::control) {
    worker.on_control(packet.from, control);
  } else if (packet.kind == Packet::Kind::reply) {
    worker.create_answered(control.rref, control.fork, {});
  } else {
    require(worker.on_create(packet.from, control) != CreateVerdict::run,
            "a duplicate of a create would run again");
  }
  for (auto const& action : worker.take_actions())
    require(action.kind == RRefAction::Kind::send && action.message.kind == FrameKind::rref_ack,
            "a duplicate has effects");
  require(worker == at(packet.to), "a duplicate changes the receiver");
}

inline void World::check_end() const {
  for (std::size_t i = 0; i < handles_.size(); ++i)
    require(handles_[i].status != Handle::Status::alive || is_crashed(script_->place(i)),
            "the model did not release everything");
  for (std::uint32_t w = 0; w < workers_.size(); ++w) {
    if (is_crashed(WorkerId{w})) continue;
    auto const& worker = *workers_[w];
    require(worker.owner_entries() == 0 && worker.forks() == 0, "a value leaked");
    require(worker.users() == 0, "a user leaked");
    require(worker.pending_children() == 0, "a pending child leaked");
    require(worker.is_quiet(), "a message is never acknowledged");
  }
  for (auto const& value : values_)
    if (value.was_made && !is_crashed(value.owner))
      require(value.was_freed, "nobody was told to free a value");
}

inline std::string World::describe(Transition t) const {
  auto const name = [](WorkerId w) { return "worker " + to_string(w); };
  if (t.kind == Transition::Kind::notice) return name(WorkerId{t.index}) + " notices the crash";
  if (t.kind == Transition::Kind::op) {
    static constexpr char const* names[] = {"creates",  "makes", "shares", "releases",
                                            "gives up", "loses", "crashes"};
    auto const& op = script_->ops()[t.index];
    return name(op.worker) + " " + names[static_cast<int>(op.kind)] + " handle " +
           std::to_string(op.handle) + " to " + to_string(op.to);
  }
  auto const& packet = network_[t.index];
  static constexpr char const* names[] = {"control", "create", "reply", "share"};
  std::string kind = names[static_cast<int>(packet.kind)];
  if (packet.kind == Packet::Kind::control) {
    static constexpr char const* controls[] = {"fork request", "child accept", "user delete",
                                               "ack"};
    kind = controls[static_cast<int>(packet.control.kind) -
                    static_cast<int>(FrameKind::rref_fork_request)];
  }
  auto const fork = packet.kind == Packet::Kind::share ? packet.data.fork : packet.control.fork;
  return name(packet.to) + " gets " + kind + " of fork " + to_string(fork) + " from " +
         to_string(packet.from) + (packet.is_copy ? " again" : "");
}

inline std::uint64_t World::hash(Packet const& p) {
  std::size_t h = static_cast<std::size_t>(p.kind);
  auto const mix = [&](std::uint64_t x) { h = distgrad::detail::mix_hash(h, x); };
  mix(p.is_copy), mix(p.from.value), mix(p.to.value), mix(static_cast<std::uint64_t>(p.handle));
  mix(static_cast<std::uint64_t>(p.control.kind));
  mix(std::hash<RRefId>()(p.control.rref)), mix(std::hash<ForkId>()(p.control.fork));
  mix(p.control.request), mix(p.control.settled), mix(p.control.create);
  mix(static_cast<std::uint64_t>(p.control.error)), mix(std::hash<ForkId>()(p.data.fork));
  return h ^ (h >> 29);
}

inline std::uint64_t World::hash() {
  std::size_t h = 0;
  auto const mix = [&](std::uint64_t x) { h = distgrad::detail::mix_hash(h, x); };
  std::uint64_t in_network = 0;  // a sum, for the order does not matter
  for (auto const& packet : network_) in_network += hash(packet);
  mix(in_network), mix(static_cast<std::uint64_t>(crashed_ + 1));
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (hashes_[w] == 0) hashes_[w] = std::hash<std::string>()(workers_[w]->text());
    mix(hashes_[w]);
  }
  for (bool const done : done_) mix(done);
  for (bool const noticed : noticed_) mix(noticed);
  for (auto const& handle : handles_)
    mix(static_cast<std::uint64_t>(handle.status) * 8 + handle.is_answered * 4u +
        handle.is_confirmed * 2u + handle.is_owner);
  for (auto const& value : values_)
    mix(value.was_made * 4u + value.was_freed * 2u + value.has_failed);
  return h ^ (h >> 31);
}

}  // namespace fork_model
