// TCP without a thread; built once as it is, and once with bounds.
#include "profile.hpp"

#include <distgrad/queue/inline_queues.hpp>

int main() {
  return footprint::run_profile<
      distgrad::DistEngine<distgrad::TcpTransport, distgrad::InlineQueues>>();
}
