#pragma once
// A group of workers without sockets: ForkProtocol on each, a network that delivers in any order,
// and a script of operations that may happen in any order their causes allow. After each step the
// promises of the protocol are checked against what the model itself knows; a broken one throws.
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <distgrad/rref/fork_protocol.hpp>

namespace fork_model {

using namespace distgrad;

struct Packet {
  enum class Kind : std::uint8_t { control, create, reply, share } kind{};
  WorkerId from, to;
  RRefControl control;  // of a reply: rref, fork and error
  ForkData data;
  int handle = -1;  // what the receiver of a share holds
  bool is_copy = false;
  friend bool operator==(Packet const&, Packet const&) = default;
};

/// One operation of a script. Each happens at most once.
struct Op {
  enum class Kind : std::uint8_t { create, local, share, release, time_out, lose, crash } kind{};
  int handle = -1;  // made by create, local and share; otherwise acted on
  int source = -1;  // of a share: the handle that is shared
  WorkerId worker;  // who acts
  WorkerId to;      // owner of a create, receiver of a share
  bool is_optional() const { return kind >= Kind::time_out; }
};

class Script {
 public:
  explicit Script(std::uint32_t workers) : workers_(workers) {}
  /// Each returns the handle it makes. Every handle is released at some time after its uses.
  int create(std::uint32_t by, std::uint32_t owner) {
    return add({Op::Kind::create, 0, -1, WorkerId{by}, WorkerId{owner}}, WorkerId{by});
  }
  int local(std::uint32_t by) {
    return add({Op::Kind::local, 0, -1, WorkerId{by}, WorkerId{by}}, WorkerId{by});
  }
  int share(int source, std::uint32_t to) {
    auto const by = places_[static_cast<std::size_t>(source)];
    return add({Op::Kind::share, 0, source, by, WorkerId{to}}, WorkerId{to});
  }
  /// The creation may be given up, whether its message arrives later or never.
  void may_time_out(int handle) {
    auto const by = places_[static_cast<std::size_t>(handle)];
    ops_.push_back({Op::Kind::time_out, handle, -1, by, by});
    ops_.push_back({Op::Kind::lose, handle, -1, by, by});
  }
  void may_crash(std::uint32_t worker) {
    ops_.push_back({Op::Kind::crash, -1, -1, WorkerId{worker}, WorkerId{worker}});
  }

  std::uint32_t workers() const { return workers_; }
  std::vector<Op> const& ops() const { return ops_; }
  std::size_t handles() const { return places_.size(); }
  WorkerId place(std::size_t handle) const { return places_[handle]; }

 private:
  int add(Op op, WorkerId place) {
    op.handle = static_cast<int>(places_.size());
    places_.push_back(place);
    ops_.push_back(op);
    ops_.push_back({Op::Kind::release, op.handle, -1, place, place});
    return op.handle;
  }
  std::uint32_t workers_;
  std::vector<Op> ops_;
  std::vector<WorkerId> places_;
};

struct Handle {
  enum class Status : std::uint8_t { unborn, travelling, alive, released } status{};
  bool is_owner = false;
  WorkerId owner;
  RRefId rref;
  ForkId fork;
  bool is_confirmed = false;  // the protocol said so
  bool is_answered = false;   // of a create: its reply was delivered, or it was given up
};

struct Value {
  RRefId rref;
  WorkerId owner;
  bool was_made = false, was_freed = false, has_failed = false;
};

/// One thing that can happen next.
struct Transition {
  enum class Kind : std::uint8_t {
    op,
    deliver,
    deliver_and_keep,  // a copy of the packet arrives later
    notice,            // that a worker crashed
  } kind{};
  std::uint16_t index = 0;  // of the operation, the packet or the worker that notices
};

class World {
 public:
  explicit World(Script const& script) : script_(&script), done_(script.ops().size()) {
    for (std::uint32_t w = 0; w < script.workers(); ++w)
      workers_.push_back(std::make_shared<ForkProtocol>(WorkerId{w}));
    handles_.resize(script.handles());
    hashes_.resize(script.workers());
    noticed_.resize(script.workers());
  }

  /// @param with_copies packets other than calls with references may arrive twice.
  std::vector<Transition> transitions(bool with_copies = false) const;
  bool is_optional(Transition t) const {
    return t.kind == Transition::Kind::op && script_->ops()[t.index].is_optional();
  }
  void apply(Transition t);
  std::string describe(Transition t) const;

  /// After a step: the two promises.
  void check() const;
  /// Everything delivered so far could arrive once more without effect.
  void check_duplicates() const;
  /// When nothing can happen any more: nothing is left.
  void check_end() const;

  /// The same for equal worlds, whatever the order in which packets were sent. What was delivered
  /// does not count, only what came of it.
  std::uint64_t hash();
  std::string text() const {
    std::string out;
    for (auto const& worker : workers_) out += worker->text();
    return out;
  }

 private:
  ForkProtocol& at(WorkerId w) {
    auto& worker = workers_[w.value];  // shared by worlds between which it did not change
    if (worker.use_count() > 1) worker = std::make_shared<ForkProtocol>(*worker);
    return *worker;
  }
  ForkProtocol const& at(WorkerId w) const { return *workers_[w.value]; }
  bool is_crashed(WorkerId w) const { return crashed_ == static_cast<int>(w.value); }
  bool can_run(Op const& op) const;
  void run(Op const& op);
  void run_share(Op const& op, Handle& source, Handle& child);
  void crash(WorkerId worker);
  void notice(WorkerId worker);
  void post(Packet packet);
  void deliver(Packet const& packet);
  void deliver_create(Packet const& packet);
  void deliver_share(Packet const& packet);
  void perform(WorkerId worker);
  void perform(WorkerId worker, RRefAction const& action);
  void check_value(Value const& value) const;
  bool is_quiet() const;
  void check_duplicate(Packet const& packet) const;
  Value& value(RRefId rref);
  static std::uint64_t hash(Packet const& packet);

  Script const* script_;
  std::vector<std::shared_ptr<ForkProtocol>> workers_;
  std::vector<Packet> network_, delivered_;
  std::vector<Handle> handles_;
  std::vector<Value> values_;
  std::vector<bool> done_;
  std::vector<std::uint64_t> hashes_;  // of the workers; 0 where not known
  int crashed_ = -1;
  std::vector<bool> noticed_;
  WorkerId changed_;
  bool is_answering_copy_ = false;
};

inline void require(bool holds, std::string const& what) {
  if (!holds) throw std::logic_error(what);
}

inline Value& World::value(RRefId rref) {
  for (auto& v : values_)
    if (v.rref == rref) return v;
  throw std::logic_error("a value nobody asked for");
}

inline bool World::can_run(Op const& op) const {
  if (op.kind == Op::Kind::crash) return crashed_ < 0;
  if (is_crashed(op.worker)) return false;
  if (op.kind == Op::Kind::create || op.kind == Op::Kind::local) return true;
  using Status = Handle::Status;
  auto const& handle = handles_[static_cast<std::size_t>(op.handle)];
  if (op.kind == Op::Kind::share)
    return handles_[static_cast<std::size_t>(op.source)].status == Status::alive;
  if (op.kind == Op::Kind::time_out || op.kind == Op::Kind::lose)
    return handle.status != Status::unborn && !handle.is_owner && !handle.is_answered;
  if (handle.status != Status::alive) return false;
  for (std::size_t i = 0; i < done_.size(); ++i)  // a handle lives until its uses
    if (!done_[i] && script_->ops()[i].source == op.handle) return false;
  return true;
}

inline std::vector<Transition> World::transitions(bool with_copies) const {
  std::vector<Transition> all;
  auto const index = [](std::size_t i) { return static_cast<std::uint16_t>(i); };
  for (std::size_t i = 0; i < done_.size(); ++i)
    if (!done_[i] && can_run(script_->ops()[i])) all.push_back({Transition::Kind::op, index(i)});
  for (std::size_t i = 0; i < network_.size(); ++i) {
    all.push_back({Transition::Kind::deliver, index(i)});
    if (with_copies && !network_[i].is_copy && network_[i].kind != Packet::Kind::share)
      all.push_back({Transition::Kind::deliver_and_keep, index(i)});
  }
  for (std::uint32_t w = 0; crashed_ >= 0 && w < workers_.size(); ++w)
    if (!noticed_[w] && !is_crashed(WorkerId{w}))
      all.push_back({Transition::Kind::notice, index(w)});
  return all;
}

inline void World::apply(Transition t) {
  if (t.kind == Transition::Kind::op) {
    done_[t.index] = true;
    changed_ = script_->ops()[t.index].worker;
    run(script_->ops()[t.index]);
  } else if (t.kind == Transition::Kind::notice) {
    changed_ = WorkerId{t.index};
    notice(changed_);
  } else {
    auto const packet = network_[t.index];
    if (t.kind == Transition::Kind::deliver_and_keep)
      network_[t.index].is_copy = true;
    else
      network_.erase(network_.begin() + t.index);
    changed_ = packet.to;
    is_answering_copy_ = packet.is_copy;
    deliver(packet);
    if (packet.kind != Packet::Kind::share && !packet.is_copy) delivered_.push_back(packet);
  }
  if (!is_crashed(changed_)) perform(changed_);
  is_answering_copy_ = false;
  hashes_[changed_.value] = 0;
}

inline void World::run(Op const& op) {
  using Status = Handle::Status;
  if (op.kind == Op::Kind::crash) return crash(op.worker);
  auto& handle = handles_[static_cast<std::size_t>(op.handle)];
  auto& protocol = at(op.worker);
  if (op.kind == Op::Kind::share)
    return run_share(op, handles_[static_cast<std::size_t>(op.source)], handle);
  if (op.kind == Op::Kind::release) {
    handle.status = Status::released;
    return handle.is_owner ? protocol.release_owner(handle.rref) : protocol.release(handle.fork);
  }
  if (op.kind == Op::Kind::time_out || op.kind == Op::Kind::lose) {
    auto const is_lost = [&](Packet const& p) {
      return p.kind == Packet::Kind::create && p.handle == op.handle;
    };
    if (op.kind == Op::Kind::lose) std::erase_if(network_, is_lost);
    handle.is_answered = true;
    return protocol.create_answered(handle.rref, handle.fork, errc::timeout);
  }
  auto const number = static_cast<std::uint64_t>(op.handle) + 1;
  auto const rref = RRefId{op.worker, Incarnation{1}, number};
  auto const fork = ForkId{op.worker, Incarnation{1}, number};
  bool const is_local = op.kind == Op::Kind::local;
  handle = {Status::alive, op.to == op.worker, op.to, rref, fork, false, false};
  values_.push_back({rref, op.to, is_local});
  if (is_local) return protocol.created_locally(rref);
  try {
    auto const control = protocol.remote_created(rref, fork, op.to);
    post({Packet::Kind::create, op.worker, op.to, control, {}, op.handle});
  } catch (Error const& error) {
    require(error.code() == errc::peer_lost && crashed_ >= 0, "a create was refused");
    handle.status = Status::released;
  }
}

inline void World::run_share(Op const& op, Handle& source, Handle& child) {
  auto const fork = ForkId{op.worker, Incarnation{1}, static_cast<std::uint64_t>(op.handle) + 1};
  try {
    auto const data = source.is_owner ? at(op.worker).share_as_owner(source.rref, fork, op.to)
                                      : at(op.worker).share_as_user(source.fork, fork, op.to);
    child = {Handle::Status::travelling, false, source.owner, source.rref, fork, false, false};
    post({Packet::Kind::share, op.worker, op.to, {}, data, op.handle});
  } catch (Error const& error) {
    bool const has_failed =
        !source.is_owner && at(op.worker).state(source.fork) == ForkState::failed;
    require(has_failed || crashed_ >= 0, std::string("sharing failed: ") + error.what());
  }
}

inline void World::crash(WorkerId worker) {
  crashed_ = static_cast<int>(worker.value);
  std::erase_if(network_, [&](Packet const& p) { return p.to == worker; });
  std::erase_if(delivered_, [&](Packet const& p) { return p.to == worker; });
}

inline void World::notice(WorkerId worker) {
  auto const gone = WorkerId{static_cast<std::uint32_t>(crashed_)};
  noticed_[worker.value] = true;
  auto const ended = [&](Packet const& p) { return p.to == worker && p.from == gone; };
  std::erase_if(network_, ended);
  std::erase_if(delivered_, ended);
  at(worker).peer_lost(gone);
}

inline void World::post(Packet packet) {
  packet.is_copy = is_answering_copy_;  // else one copy would make another for ever
  if (!is_crashed(packet.to)) network_.push_back(packet);
}

inline void World::deliver(Packet const& packet) {
  if (packet.kind == Packet::Kind::create) return deliver_create(packet);
  if (packet.kind == Packet::Kind::share) return deliver_share(packet);
  auto const& control = packet.control;
  if (packet.kind == Packet::Kind::control) {
    require(at(packet.to).on_control(packet.from, control), "a control message was not understood");
    return;
  }
  handles_[static_cast<std::size_t>(packet.handle)].is_answered = true;
  auto const error = control.error == errc{} ? error_code{} : error_code{control.error};
  at(packet.to).create_answered(control.rref, control.fork, error);
}

inline void World::deliver_create(Packet const& packet) {
  auto const verdict = at(packet.to).on_create(packet.from, packet.control);
  auto reply = packet.control;
  if (verdict == CreateVerdict::run) {
    auto& made = value(packet.control.rref);
    require(!std::exchange(made.was_made, true), "a creating function ran twice");
  }
  bool const is_given_up = handles_[static_cast<std::size_t>(packet.handle)].is_answered;
  require(verdict == CreateVerdict::run || is_given_up || packet.is_copy || crashed_ >= 0,
          "a creating function did not run");
  if (verdict == CreateVerdict::cancelled) reply.error = errc::cancelled;
  post({Packet::Kind::reply, packet.to, packet.from, reply, {}, packet.handle});
}

inline void World::deliver_share(Packet const& packet) {
  auto& handle = handles_[static_cast<std::size_t>(packet.handle)];
  auto const got = at(packet.to).received(packet.data);
  handle.is_owner = got.owner;
  handle.is_confirmed = got.state == ForkState::confirmed;
  handle.status = Handle::Status::alive;
  if (got.owner && got.state == ForkState::failed) {
    require(crashed_ >= 0, "the owner freed a value before a reference to it came home");
    handle.status = Handle::Status::released;
  }
}

inline void World::perform(WorkerId worker) {
  for (auto const& action : at(worker).take_actions()) perform(worker, action);
}

inline void World::perform(WorkerId worker, RRefAction const& action) {
  using Kind = RRefAction::Kind;
  if (action.kind == Kind::send)
    return post({Packet::Kind::control, worker, action.to, action.message, {}, -1});
  if (action.kind == Kind::value_failed) {
    value(action.rref).has_failed = true;
    return require(!value(action.rref).was_made, "a value failed that was made");
  }
  if (action.kind == Kind::value_freed) {
    auto& freed = value(action.rref);  // or it was only expected
    return require(!freed.was_made || !std::exchange(freed.was_freed, true),
                   "a value was freed twice");
  }
  for (auto& handle : handles_)
    if (action.kind == Kind::confirmed && handle.fork == action.fork)
      require(!std::exchange(handle.is_confirmed, true), "a reference was confirmed twice");
}

}  // namespace fork_model

#include "fork_model_checks.hpp"
