// TCP without a thread; built once as it is, and once with bounds.
#include "profile.hpp"

#include <distgrad/queue/inline_queues.hpp>

int main(int, char** argv) {
  using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::InlineQueues>;
  return footprint::run_both(argv[1], footprint::run<Engine>);
}
