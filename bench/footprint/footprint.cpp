// What does the library add to a program, and what does a poll of the embedded profile cost?
//
//   footprint
//
// One JSON line per profile on stdout, a table for people on stderr. Sizes are those of the
// sections, as size(1) says them, of programs built with -Os that differ in their profile alone;
// shared libraries, libtorch among them, are not in them: the first row is a program that has
// libtorch and nothing of distgrad. Heap and threads are what the worker added once it had met one
// other and made a call; the memory of the process is all that no file backs, libtorch's included.
// System calls are those of the whole process, counted with ptrace, which slows it down.
#include "../support/free_port.hpp"
#include "../support/report.hpp"
#include "measure.hpp"
#include "program_file.hpp"
#include "tracer.hpp"

#include <cstdlib>

namespace {

using footprint::Trace;

struct Profile {
  char const* name;
  char const* label;  // for people
};
constexpr Profile profiles[] = {{"libtorch", "libtorch alone"},
                                {"full", "TCP, threads"},
                                {"inline", "TCP, no thread"},
                                {"bounded", "the same with bounds"},
                                {"raw", "raw worker, without libtorch"}};

double per_round(Trace const& trace, long part) {
  auto const found = trace.calls.find(part);
  return found == trace.calls.end() ? std::nan("") : double(found->second) / footprint::rounds;
}

/// What one program is and takes. NaN: it has no such thing.
struct Row {
  footprint::Sizes sizes;
  double heap = 0, threads = 0, process = 0, per_poll = 0, per_call = 0;
};

/// @throws std::runtime_error when the program fails.
Row measure(std::string const& program) {
  auto const trace = footprint::Tracer().run(program, std::to_string(bench::free_port()));
  Row row{.sizes = footprint::sizes_of(program),
          .per_poll = per_round(trace, footprint::polls),
          .per_call = per_round(trace, footprint::calls)};
  if (trace.status != 0 || std::sscanf(trace.output.c_str(), "%lf %lf %lf", &row.heap, &row.threads,
                                       &row.process) != 3) {
    throw std::runtime_error(program + " failed: status " + std::to_string(trace.status));
  }
  return row;
}

void print_json(Profile const& profile, Row const& row) {
  bench::JsonLine line("footprint");
  line.add("profile", profile.name)
      .add_raw("text_bytes", std::to_string(row.sizes.text))
      .add_raw("data_bytes", std::to_string(row.sizes.data))
      .add_raw("bss_bytes", std::to_string(row.sizes.bss))
      .add("heap_bytes", row.heap)
      .add("threads", row.threads)
      .add("process_bytes", row.process)
      .add("system_calls_per_poll", row.per_poll)
      .add("system_calls_per_call", row.per_call);
  line.print();
}

std::string cell(double value, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return std::isnan(value) ? " " : text;
}

/// One line of a table in Markdown; kB are 1000 bytes.
void print_for_people(Profile const& profile, Row const& row) {
  auto const& sizes = row.sizes;
  std::fprintf(stderr, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", profile.label,
               cell(double(sizes.text) / 1e3, 0).c_str(), cell(double(sizes.data) / 1e3, 1).c_str(),
               cell(double(sizes.bss) / 1e3, 1).c_str(), cell(row.heap / 1e3, 0).c_str(),
               cell(row.threads, 0).c_str(), cell(row.process / 1e6, 1).c_str(),
               cell(row.per_poll, 1).c_str(), cell(row.per_call, 1).c_str());
}

}  // namespace

int main(int, char** argv) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  // What a thread has freed and keeps for itself would be counted as allocated.
  ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
  std::string const self = argv[0];
  auto const slash = self.rfind('/');
  auto const folder = slash == std::string::npos ? "." : self.substr(0, slash);
  std::fprintf(stderr,
               "| | text kB | data kB | bss kB | heap kB | threads | process MB | system calls per "
               "poll | per call |\n|---|---|---|---|---|---|---|---|---|\n");
  try {
    for (auto const& profile : profiles) {
      auto const row = measure(folder + "/footprint_" + profile.name);
      print_json(profile, row);
      print_for_people(profile, row);
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "footprint: %s\n", error.what());
    return 1;
  }
}
