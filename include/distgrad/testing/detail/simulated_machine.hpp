#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <distgrad/core/unique_function.hpp>

namespace distgrad::testing::detail {

inline constexpr c10::DeviceType simulated_type = c10::DeviceType::PrivateUse1;

// The device behind `SimulatedDevices`: streams of work that a seeded generator picks from when the
// host waits, and sometimes when it does not. No thread of its own: work runs on whichever thread
// makes it run, one piece at a time.
//
// Its memory is the host's, so that a kernel is any function. What is freed is filled with 0xff
// (nan in every floating type) in the order of the streams that may use it.
//
// The one object of its kind is never destroyed: libtorch's registries point to it, and memory of
// the device may outlive `main`.
class SimulatedMachine {
 public:
  static constexpr std::size_t devices = 2, streams_per_device = 8;

  // The work of a stream up to here.
  struct Mark {
    std::size_t stream = 0;
    std::uint64_t count = 0;
  };

  static SimulatedMachine& get() {
    static auto* const machine = new SimulatedMachine;
    return *machine;
  }

  // `eagerness`: chance, in percent, that work runs when other work is added.
  void reset(std::uint64_t seed, unsigned eagerness) {
    Lock const lock(mutex_);
    run_all();
    random_.seed(seed);
    eagerness_ = eagerness;
    host_waits_ = 0;
    error_.clear();
    for (auto& stream : streams_) stream.speed = 1u << random_() % 6;
  }

  // --- streams ---

  void enqueue(std::size_t stream, unique_function<void()> work) {
    Lock const lock(mutex_);
    push(stream, {std::move(work), {}});
    while (random_() % 100 < eagerness_ && step()) {
    }
  }
  Mark mark(std::size_t stream) const {
    Lock const lock(mutex_);
    return {stream, streams_[stream].pushed};
  }
  void block(std::size_t stream, Mark mark) {
    Lock const lock(mutex_);
    push(stream, {nullptr, {mark}});
  }
  bool is_done(Mark mark) {
    Lock const lock(mutex_);
    step();  // who asks again and again shall get an answer
    return has_passed(mark);
  }
  void await(Mark mark) {
    Lock const lock(mutex_);
    ++host_waits_;
    while (!has_passed(mark) && step()) {
    }
  }
  void await_all() {
    Lock const lock(mutex_);
    ++host_waits_;
    run_all();
  }

  // --- memory ---

  struct Block {
    SimulatedMachine* machine;
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes;
    std::size_t home;  // the stream it was allocated for; pinned memory of the host has none
    std::vector<std::size_t> users;
  };
  static constexpr std::size_t no_stream = devices * streams_per_device;

  c10::DataPtr allocate(std::size_t bytes, std::size_t home, c10::Device device) {
    if (bytes == 0) return {nullptr, device};
    Lock const lock(mutex_);
    auto block = take_block(bytes);
    block->home = home;
    if (home == no_stream) pinned_[block->data.get()] = bytes;
    auto* const data = block->data.get();
    return {data, block.release(), &free_block, device};
  }
  void record_use(c10::DataPtr const& data, std::size_t stream) {
    Lock const lock(mutex_);
    if (data.get_deleter() != &free_block || !data.get_context()) return;
    static_cast<Block*>(data.get_context())->users.push_back(stream);
  }
  bool is_pinned(void const* data) const {
    Lock const lock(mutex_);
    auto const after = pinned_.upper_bound(static_cast<std::byte const*>(data));
    if (after == pinned_.begin()) return false;
    auto const& [begin, bytes] = *std::prev(after);
    return static_cast<std::byte const*>(data) < begin + bytes;
  }

  // --- what tests ask ---

  std::size_t pending() const {
    Lock const lock(mutex_);
    std::size_t sum = 0;
    for (auto const& stream : streams_) sum += stream.work.size();
    return sum;
  }
  std::size_t host_waits() const {
    Lock const lock(mutex_);
    return host_waits_;
  }
  std::string error() const {
    Lock const lock(mutex_);
    return error_;
  }

  // --- what belongs to the calling thread ---

  struct Current {
    c10::DeviceIndex device = 0;
    std::array<c10::StreamId, devices> streams{};
  };
  static Current& current() {
    thread_local Current current;
    return current;
  }
  static c10::Stream current_stream(c10::Device device) {
    return stream(device, current().streams.at(std::size_t(index_of(device))));
  }
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {simulated_type, index_of(device)}, id);
  }
  static std::size_t number(c10::Stream stream) {
    return std::size_t(stream.device_index()) * streams_per_device + std::size_t(stream.id());
  }
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current().device;
  }

 private:
  using Lock = std::lock_guard<std::mutex>;
  struct Work {
    unique_function<void()> run;
    std::vector<Mark> after;
  };
  struct Stream {
    std::deque<Work> work;
    std::uint64_t pushed = 0, done = 0;
    unsigned speed = 1;
  };

  void push(std::size_t stream, Work work) {
    streams_[stream].work.push_back(std::move(work));
    ++streams_[stream].pushed;
  }
  bool has_passed(Mark mark) const { return streams_[mark.stream].done >= mark.count; }
  bool may_run(Work const& work) const {
    for (auto const& mark : work.after) {
      if (!has_passed(mark)) return false;
    }
    return true;
  }

  // Runs one piece of work that nothing holds back. @return false if there is none.
  bool step() {
    std::uint64_t total = 0;
    std::array<std::uint64_t, no_stream> up_to{};
    for (std::size_t i = 0; i < no_stream; ++i) {
      auto const& work = streams_[i].work;
      if (!work.empty() && may_run(work.front())) total += streams_[i].speed;
      up_to[i] = total;
    }
    // What waits for several streams to let go of memory runs as if on a stream of its own.
    for (auto at = freed_.begin(); at != freed_.end(); ++at) {
      if (!may_run(*at) || (total != 0 && random_() % 4 != 0)) continue;
      auto work = std::move(*at);
      freed_.erase(at);
      work.run();
      return true;
    }
    if (total == 0) return false;
    auto const pick = random_() % total;
    std::size_t i = 0;
    while (up_to[i] <= pick) ++i;
    auto work = std::move(streams_[i].work.front());
    streams_[i].work.pop_front();
    if (work.run) run(work);
    ++streams_[i].done;
    return true;
  }
  void run(Work& work) {
    try {
      work.run();
    } catch (std::exception const& e) {
      if (error_.empty()) error_ = e.what();
    }
  }
  void run_all() {
    while (step()) {
    }
  }

  std::unique_ptr<Block> take_block(std::size_t bytes) {
    if (auto const at = pool_.find(bytes); at != pool_.end()) {
      auto block = std::move(at->second);
      pool_.erase(at);
      return block;
    }
    auto block = std::make_unique<Block>(
        Block{this, std::make_unique<std::byte[]>(bytes), bytes, no_stream, {}});
    std::memset(block->data.get(), 0xff, bytes);
    return block;
  }
  static void free_block(void* block) { get().free(static_cast<Block*>(block)); }
  void free(Block* block) {
    Lock const lock(mutex_);
    auto const home = std::exchange(block->home, no_stream);
    auto const users = std::exchange(block->users, {});
    if (home == no_stream) pinned_.erase(block->data.get());
    // Never back to the system: a wrong program may still read it, and shall find nan.
    auto recycle = [this, block] {
      std::memset(block->data.get(), 0xff, block->bytes);
      pool_.emplace(block->bytes, block);
    };
    if (home != no_stream && users.empty()) return push(home, {std::move(recycle), {}});
    std::vector<Mark> after;
    if (home != no_stream) after.push_back({home, streams_[home].pushed});
    for (auto const user : users) after.push_back({user, streams_[user].pushed});
    freed_.push_back({std::move(recycle), std::move(after)});
  }

  mutable std::mutex mutex_;
  std::array<Stream, no_stream> streams_;
  std::vector<Work> freed_;
  std::multimap<std::size_t, std::unique_ptr<Block>> pool_;
  std::map<std::byte const*, std::size_t> pinned_;
  std::mt19937_64 random_;
  unsigned eagerness_ = 0;
  std::size_t host_waits_ = 0;
  std::string error_;
};

// Both classes say nowhere that they override: which functions exist, and whether they are const,
// differs between versions of libtorch.
struct SimulatedAllocator : c10::Allocator {
  explicit SimulatedAllocator(bool is_pinned) : is_pinned_(is_pinned) {}

  c10::DataPtr allocate(std::size_t bytes) const {
    auto& machine = SimulatedMachine::get();
    if (is_pinned_) return machine.allocate(bytes, machine.no_stream, c10::DeviceType::CPU);
    c10::Device const device(simulated_type, machine.current().device);
    return machine.allocate(bytes, machine.number(machine.current_stream(device)), device);
  }
  c10::DataPtr allocate(std::size_t bytes) { return std::as_const(*this).allocate(bytes); }
  void copy_data(void* to, void const* from, std::size_t bytes) const {
    SimulatedMachine::get().await_all();
    std::memcpy(to, from, bytes);
  }

 private:
  bool is_pinned_;
};

struct SimulatedGuard : c10::impl::DeviceGuardImplInterface {
  using Machine = SimulatedMachine;
  static Machine& machine() { return Machine::get(); }

  c10::DeviceType type() const { return simulated_type; }
  c10::DeviceIndex deviceCount() const noexcept { return Machine::devices; }
  c10::Device getDevice() const { return {simulated_type, Machine::current().device}; }
  void setDevice(c10::Device device) const {
    TORCH_CHECK(device.type() == simulated_type && Machine::index_of(device) < deviceCount(),
                "there is no simulated device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept {
    if (device.has_index()) Machine::current().device = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const {
    auto const before = getDevice();
    setDevice(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const noexcept {
    return Machine::current_stream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const { return Machine::stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const {
    static std::atomic<unsigned> next{0};
    return Machine::stream(device, 1 + next++ % (Machine::streams_per_device - 1));
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept {
    auto const before = Machine::current_stream(stream.device());
    Machine::current().streams[std::size_t(stream.device_index())] = stream.id();
    return before;
  }

  void record(void** event, c10::Stream const& stream, c10::DeviceIndex, c10::EventFlag) const {
    if (!*event) *event = new Machine::Mark;
    *static_cast<Machine::Mark*>(*event) = machine().mark(Machine::number(stream));
  }
  void block(void* event, c10::Stream const& stream) const {
    if (event) machine().block(Machine::number(stream), *static_cast<Machine::Mark*>(event));
  }
  bool queryEvent(void* event) const {
    return !event || machine().is_done(*static_cast<Machine::Mark*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept {
    delete static_cast<Machine::Mark*>(event);
  }
  void synchronizeEvent(void* event) const {
    if (event) machine().await(*static_cast<Machine::Mark*>(event));
  }
  bool queryStream(c10::Stream const& stream) const {
    return machine().is_done(machine().mark(Machine::number(stream)));
  }
  void synchronizeStream(c10::Stream const& stream) const {
    machine().await(machine().mark(Machine::number(stream)));
  }
  void synchronizeDevice(c10::DeviceIndex) const { machine().await_all(); }
  void recordDataPtrOnStream(c10::DataPtr const& data, c10::Stream const& stream) const {
    machine().record_use(data, Machine::number(stream));
  }
};

}  // namespace distgrad::testing::detail
