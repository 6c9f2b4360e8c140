// TCP and a pool of threads: the default engine.
#include "profile.hpp"

#include <distgrad/queue/cpu_queues.hpp>

int main(int, char** argv) {
  using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>;
  return footprint::run_both(argv[1], footprint::run<Engine>);
}
