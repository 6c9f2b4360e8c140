// TCP and a pool of threads: the default engine.
#include "profile.hpp"

#include <distgrad/queue/cpu_queues.hpp>

int main() {
  return footprint::run_profile<
      distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>>();
}
