// TCP without a thread, without libtorch, and without exceptions and RTTI: what a sensor has.
#include "measure.hpp"

#include <distgrad/raw/raw_worker.hpp>
#include <distgrad/transport/tcp_transport.hpp>

namespace {

using Worker = distgrad::RawWorker<distgrad::TcpTransport>;

void measure(Worker& worker, footprint::Before const& before, bool& worked) {
  auto const call = [&](int i) {
    auto const result = worker.call<int(int)>(1, "add_one", i);
    worked = worked && result && *result == i + 1;
  };
  call(0);
  footprint::print_start(before);
  while (worker.poll() != 0) {
  }
  footprint::count_calls_of(footprint::polls, [&](int) { worker.poll(); });
  footprint::count_calls_of(footprint::calls, call);
}

bool run(int rank, std::uint16_t port) {
  footprint::Before const before;
  Worker::Options options;
  options.rank = rank;
  options.world_size = 2;
  options.master_port = port;
  options.transport.bind_address = "127.0.0.1";
  auto const joined = Worker::join(std::move(options));
  if (!joined) return false;
  auto& worker = **joined;
  worker.define<int(int)>("add_one", [](int x) { return x + 1; });
  bool worked = true;
  if (rank == 0) measure(worker, before, worked);
  return worker.shutdown() && worked;
}

}  // namespace

int main(int, char** argv) { return footprint::run_both(argv[1], run); }
