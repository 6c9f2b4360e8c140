// What does the library add to a program, and what does a poll of the embedded profile cost?
//
//   footprint
//
// One JSON line per profile on stdout. Sizes are those of the sections, as size(1) says them, of
// programs built with -Os that differ in their profile alone; libtorch itself is a shared library
// and not in them. Heap and threads are what the engine added once it had met one other and made
// a call. System calls are counted with ptrace.
#include "../support/report.hpp"
#include "program_file.hpp"
#include "tracer.hpp"

#include <limits>

namespace {

using footprint::Trace;

constexpr long polls = 0x1001, calls = 0x1002;  // as in profile.hpp
constexpr double rounds = 1000;

double per_round(Trace const& trace, long part) {
  auto const found = trace.calls.find(part);
  return found == trace.calls.end() ? std::numeric_limits<double>::quiet_NaN()
                                    : double(found->second) / rounds;
}

bool report(std::string const& profile, std::string const& folder) {
  auto const path = folder + "/footprint_" + profile;
  auto const sizes = footprint::sizes_of(path);
  auto const trace = footprint::Tracer().run(path);
  if (trace.status != 0) {
    std::fprintf(stderr, "%s ended with %d\n", path.c_str(), trace.status);
    return false;
  }
  bench::JsonLine line("footprint");
  line.add("profile", profile)
      .add_raw("text_bytes", std::to_string(sizes.text))
      .add_raw("data_bytes", std::to_string(sizes.data))
      .add_raw("bss_bytes", std::to_string(sizes.bss));
  if (!trace.output.empty()) line.add_fields(trace.output);
  line.add("system_calls_per_poll", per_round(trace, polls))
      .add("system_calls_per_call", per_round(trace, calls));
  line.print();
  return true;
}

}  // namespace

int main(int, char** argv) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::string const self = argv[0];
  auto const slash = self.rfind('/');
  auto const folder = slash == std::string::npos ? "." : self.substr(0, slash);
  bool all = true;
  try {
    for (auto const* profile : {"libtorch", "full", "inline", "bounded"}) {
      all = report(profile, folder) && all;
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "footprint: %s\n", error.what());
    return 1;
  }
  return all ? 0 : 1;
}
