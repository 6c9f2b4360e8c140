#pragma once
#include <algorithm>
#include <array>

#include <distgrad/observe/detail/prometheus_writer.hpp>
#include <distgrad/observe/detail/utf8.hpp>
#include <distgrad/observe/prometheus.hpp>
#include <distgrad/version.hpp>

namespace distgrad {
namespace detail {

DISTGRAD_DECL std::string PrometheusWriter::escape(std::string_view value) {
  std::string escaped;
  while (!value.empty()) {
    auto const bytes = utf8_character_bytes(value);
    auto const character = bytes != 0 ? value.substr(0, bytes) : replacement_character;
    if (character == "\n") {
      escaped += "\\n";
    } else {
      if (character == "\"" || character == "\\") escaped += '\\';
      escaped += character;
    }
    value.remove_prefix(bytes != 0 ? bytes : 1);
  }
  return escaped;
}

/// One side's calls: `prefix` is "call" or "served_call".
class CallFamilies {
 public:
  CallFamilies(Observer const& observer, PrometheusWriter& out) : observer_(observer), out_(out) {}

  void write(CallSeriesTable const& table, std::string const& prefix, std::string const& what) {
    auto const all = table.all();
    out_.family(prefix + "s_total", "counter", what + ", by function and peer.");
    for (auto const* s : all) out_.sample(labels(*s), s->begun.value());
    out_.family(prefix + "s_failed_total", "counter", what + " that failed, by error.");
    for (auto const* s : all) {
      for (auto const& [error, count] : s->failures.snapshot()) {
        out_.sample(
            std::array<Label, 3>{
                {{"peer", name(s->peer)}, {"function", s->function}, {"error", error}}},
            count);
      }
    }
    out_.family(prefix + "_duration_seconds", "histogram", what + ": from begin to end.");
    for (auto const* s : all) out_.sample(labels(*s), s->duration.snapshot());
  }

 private:
  std::string_view name(WorkerId peer) const { return observer_.group()[peer.value].info.name; }
  std::array<Label, 2> labels(CallSeries const& s) const {
    return {{{"peer", name(s.peer)}, {"function", s.function}}};
  }

  Observer const& observer_;
  PrometheusWriter& out_;
};

inline void write_traffic(Observer const& observer, PrometheusWriter& out) {
  auto const& traffic = observer.metrics().traffic;
  auto const write = [&](std::string name, std::string_view help, auto pick) {
    out.family(name, "counter", help);
    for (std::size_t peer = 0; peer < traffic.size(); ++peer) {
      for (std::size_t kind = 0; kind < traffic_kind_names.size(); ++kind) {
        auto const value = pick(traffic[peer], kind);
        if (value == 0) continue;
        out.sample(std::array<Label, 2>{{{"peer", observer.group()[peer].info.name},
                                         {"kind", traffic_kind_names[kind]}}},
                   value);
      }
    }
  };
  using Peer = PeerTraffic const&;
  write("sent_messages_total", "Messages handed to the transport, by peer and kind.",
        [](Peer p, std::size_t kind) { return p.sent[kind].messages.value(); });
  write("sent_bytes_total", "Bytes of these messages, their headers included.",
        [](Peer p, std::size_t kind) { return p.sent[kind].bytes.value(); });
  write("received_messages_total", "Messages that arrived, by peer and kind.",
        [](Peer p, std::size_t kind) { return p.received[kind].messages.value(); });
  write("received_bytes_total", "Bytes of these messages, their headers included.",
        [](Peer p, std::size_t kind) { return p.received[kind].bytes.value(); });
}

inline void write_peers(Observer const& observer, PrometheusWriter& out) {
  out.family("peer_up", "gauge", "1 for a worker that can be reached, 0 for one that was lost.");
  for (auto const& peer : observer.group()) {
    bool const is_lost = observer.metrics().traffic[peer.info.id.value].is_lost.load();
    out.sample(std::array<Label, 1>{{{"peer", peer.info.name}}}, is_lost ? 0 : 1);
  }
}

inline void write_passes(Metrics const& metrics, PrometheusWriter& out) {
  auto const each = [&](auto use) {
    for (bool smart : {false, true}) {
      for (bool initiator : {false, true}) {
        use(metrics.passes[smart][initiator],
            std::array<Label, 2>{{{"mode", smart ? "smart" : "fast"},
                                  {"role", initiator ? "initiator" : "participant"}}});
      }
    }
  };
  using Two = std::array<Label, 2> const&;
  out.family("passes_total", "counter", "Backward passes begun, by mode and this worker's role.");
  each([&](PassSeries const& s, Two labels) { out.sample(labels, s.begun.value()); });
  out.family("passes_failed_total", "counter", "Backward passes that failed, by error.");
  each([&](PassSeries const& s, Two labels) {
    for (auto const& [error, count] : s.failures.snapshot()) {
      out.sample(std::array<Label, 3>{{labels[0], labels[1], {"error", error}}}, count);
    }
  });
  out.family("pass_duration_seconds", "histogram", "Backward passes: this worker's part.");
  each([&](PassSeries const& s, Two labels) { out.sample(labels, s.duration.snapshot()); });
  out.family("pass_gradients_sent_total", "counter",
             "Hops of backward passes: gradient messages to other workers.");
  each([&](PassSeries const& s, Two labels) { out.sample(labels, s.gradients_sent.value()); });
  out.family("pass_gradients_received_total", "counter",
             "Hops of backward passes: gradient messages from other workers.");
  each([&](PassSeries const& s, Two labels) { out.sample(labels, s.gradients_received.value()); });
}

inline std::string version_text() {
  return std::to_string(DISTGRAD_VERSION / 10000) + "." +
         std::to_string(DISTGRAD_VERSION / 100 % 100) + "." +
         std::to_string(DISTGRAD_VERSION % 100);
}

inline void write_tasks(Metrics const& metrics, PrometheusWriter& out) {
  out.family("queue_depth", "gauge", "Tasks that wait for a thread of the compute queue.");
  out.sample({},
             static_cast<std::uint64_t>(std::max<std::int64_t>(0, metrics.tasks_waiting.value())));
  out.family("queue_wait_seconds", "histogram", "How long tasks waited in the compute queue.");
  out.sample({}, metrics.task_wait.snapshot());
}

}  // namespace detail

DISTGRAD_DECL std::string prometheus_text(Observer const& observer,
                                          std::span<GaugeReading const> gauges) {
  auto const& self = observer.self();
  detail::PrometheusWriter out(self.name);
  out.family("info", "gauge", "Always 1: which worker this is.");
  out.sample(std::array<detail::Label, 2>{{{"rank", std::to_string(self.id.value)},
                                           {"version", detail::version_text()}}},
             1);
  detail::CallFamilies calls(observer, out);
  calls.write(observer.metrics().made, "call", "Calls this worker made");
  calls.write(observer.metrics().served, "served_call", "Calls this worker ran for others");
  detail::write_peers(observer, out);
  detail::write_traffic(observer, out);
  detail::write_passes(observer.metrics(), out);
  detail::write_tasks(observer.metrics(), out);
  for (auto const& gauge : gauges) {
    out.family(gauge.name, "gauge", gauge.help);
    out.sample({}, gauge.value);
  }
  return out.take();
}

}  // namespace distgrad
