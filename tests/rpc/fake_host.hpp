#pragma once
// A host without transport, queues and threads: what is sent and submitted stays where the test
// sees it.

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <distgrad/rpc/host.hpp>
#include <distgrad/serialize/serializer.hpp>

#include "../observe/log_book.hpp"

namespace fake_host {

class FakeHost : public distgrad::Host {
 public:
  void send(distgrad::WorkerId to, distgrad::Message message,
            distgrad::SendCompletion done) override {
    sent.emplace_back(to, std::move(message));
    if (done) done({});
  }
  void wake() noexcept override { ++wakes; }
  void submit(std::uint64_t, distgrad::unique_function<void()> task) override {
    tasks.push_back(std::move(task));
  }
  void pack(distgrad::Writer& out, std::vector<distgrad::Buffer>& buffers,
            std::span<at::Tensor const> tensors) override {
    distgrad::pack_tensors(out, buffers, tensors);
  }
  distgrad::ReceivedTensors unpack(distgrad::Reader& in,
                                   std::span<distgrad::Buffer const> buffers) override {
    return distgrad::unpack_tensors(in, buffers);
  }
  std::vector<distgrad::Buffer> landing(std::span<std::uint64_t const> lengths,
                                        bool for_devices) override {
    landed_for_devices = for_devices;
    if (landing_fails) throw std::bad_alloc();
    return distgrad::allocate_landings(lengths);
  }
  distgrad::DeviceRoutes const& routes() const override { return device_routes; }
  void place(std::span<at::Tensor>, std::span<c10::Device const>) override {}
  distgrad::TimeSource const& clock() const override { return clock_; }
  distgrad::Log const& log() const noexcept override { return log_; }
  void post(distgrad::unique_function<void()> continuation) override {
    tasks.push_back(std::move(continuation));
  }
  void run_tasks() {
    while (!tasks.empty()) {
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  std::vector<std::pair<distgrad::WorkerId, distgrad::Message>> sent;
  std::deque<distgrad::unique_function<void()>> tasks;
  log_book::LogBook logged;
  int wakes = 0;
  distgrad::DeviceRoutes device_routes;
  bool landing_fails = false;
  bool landed_for_devices = false;

 private:
  distgrad::TimeSource clock_;
  distgrad::Log log_{logged.sink(), distgrad::LogLevel::debug, "w0"};
};

}  // namespace fake_host
