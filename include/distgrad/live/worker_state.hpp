#pragma once
#include <string>

#include <distgrad/engine/worker.hpp>
#include <distgrad/observe/json_writer.hpp>
#include <distgrad/observe/observer.hpp>

namespace distgrad::detail {

// What one worker knows of itself, as JSON. Times are seconds, points in time microseconds of the
// worker's wall clock, ids texts. Without an observer only what needs none.
class WorkerState {
 public:
  explicit WorkerState(Worker const& worker) : worker_(worker), observer_(worker.observer()) {}

  std::string whole() {
    json_.object([&] {
      header();
      json_.object("gauges", [&] { gauges(); });
      if (observer_) {
        json_.array("made", [&] { calls(observer_->metrics().made); });
        json_.array("served", [&] { calls(observer_->metrics().served); });
        json_.array("routes", [&] { routes_inside(); });
        json_.object("passes", [&] { passes_inside(60); });
      }
      json_.array("contexts", [&] { contexts_inside(); });
      json_.array("graphs", [&] { graphs_inside(); });
    });
    return json_.take();
  }
  std::string workers() {
    json_.object([&] {
      header();
      json_.array("workers", [&] {
        for (auto const& info : worker_.group()) worker(info);
      });
    });
    return json_.take();
  }
  std::string contexts() {
    json_.object([&] {
      header();
      json_.array("contexts", [&] { contexts_inside(); });
      json_.array("graphs", [&] { graphs_inside(); });
    });
    return json_.take();
  }
  std::string passes() {
    json_.object([&] {
      header();
      if (observer_) passes_inside(PassHistory::capacity);
    });
    return json_.take();
  }
  std::string rrefs() {
    json_.object([&] {
      header();
      auto const info = worker_.debug_info();
      json_.member("owned", info.owned_rrefs);
      json_.member("used", info.used_rrefs);
      json_.member("forks", info.forks);
      json_.member("pending", info.pending_users);
    });
    return json_.take();
  }
  std::string routes() {
    json_.object([&] {
      header();
      if (observer_) json_.array("routes", [&] { routes_inside(); });
    });
    return json_.take();
  }
  std::string functions() {
    json_.object([&] {
      header();
      json_.array("functions", [&] {
        for (auto const& name : worker_.functions()) json_.value(name);
      });
      if (observer_) {
        json_.array("made", [&] { calls(observer_->metrics().made); });
        json_.array("served", [&] { calls(observer_->metrics().served); });
      }
    });
    return json_.take();
  }

 private:
  static double seconds(std::chrono::nanoseconds t) {
    return std::chrono::duration<double>(t).count();
  }
  static std::int64_t microseconds(std::chrono::system_clock::time_point t) {
    return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
  }
  std::string const& name(WorkerId id) const { return worker_.find(id).name; }

  void header() {
    json_.member("name", worker_.name());
    json_.member("rank", worker_.rank());
    json_.member("running", worker_.is_running());
    json_.member("now_us", microseconds(std::chrono::system_clock::now()));
    if (observer_) json_.member("uptime", seconds(Clock::now() - observer_->since()));
  }
  void worker(WorkerInfo const& info) {
    json_.object([&] {
      json_.member("name", info.name);
      json_.member("rank", info.id.value);
      if (!observer_) return;
      json_.member("lost", observer_->metrics().traffic[info.id.value].is_lost.load());
      json_.member("endpoint", observer_->group()[info.id.value].endpoint);
    });
  }
  void gauges() {
    auto const info = worker_.debug_info();
    json_.member("calls_in_flight", info.pending_calls);
    json_.member("rrefs_owned", info.owned_rrefs);
    json_.member("rrefs_used", info.used_rrefs);
    json_.member("rref_forks", info.forks);
    json_.member("contexts", info.autograd_contexts);
    json_.member("passes_in_flight", info.backward_passes);
    if (observer_) json_.member("queue_depth", observer_->metrics().tasks_waiting.value());
  }
  void failures(FailureCounts const& counts) {
    json_.object("failed", [&] {
      for (auto const& [error, count] : counts.snapshot()) json_.member(error, count);
    });
  }
  void histogram(MetricHistogram const& histogram) {
    auto const now = histogram.snapshot();
    json_.member("ended", now.count);
    json_.member("seconds", seconds(now.sum));
    json_.array("buckets", [&] {
      for (auto const count : now.buckets) json_.value(count);
    });
  }
  void calls(CallSeriesTable const& table) {
    for (auto const* series : table.all()) {
      json_.object([&] {
        json_.member("function", series->function);
        json_.member("peer", name(series->peer));
        json_.member("begun", series->begun.value());
        histogram(series->duration);
        failures(series->failures);
      });
    }
  }
  void cells(std::string_view direction, PeerTraffic::Cells const& cells) {
    json_.object(direction, [&] {
      for (std::size_t kind = 0; kind < cells.size(); ++kind) {
        json_.object(traffic_kind_names[kind], [&] {
          json_.member("messages", cells[kind].messages.value());
          json_.member("bytes", cells[kind].bytes.value());
        });
      }
    });
  }
  void routes_inside() {
    for (auto const& peer : observer_->group()) {
      auto const& traffic = observer_->metrics().traffic[peer.info.id.value];
      json_.object([&] {
        json_.member("peer", peer.info.name);
        json_.member("endpoint", peer.endpoint);
        json_.member("lost", traffic.is_lost.load());
        cells("sent", traffic.sent);
        cells("received", traffic.received);
      });
    }
  }
  void record(PassRecord const& pass) {
    json_.object([&] {
      json_.member("id", to_string(pass.id));
      json_.member("context", to_string(pass.id.context));
      json_.member("initiator", name(pass.id.initiator));
      json_.member("mode", pass.is_smart ? "smart" : "fast");
      json_.member("began_us", microseconds(pass.began));
      json_.member("duration", seconds(pass.duration));
      json_.member("sent", pass.gradients_sent);
      json_.member("received", pass.gradients_received);
      if (pass.error) json_.member("error", error_name(pass.error));
    });
  }
  void pass_totals(bool smart, bool initiator) {
    auto const& series = observer_->metrics().passes[smart][initiator];
    json_.object([&] {
      json_.member("mode", smart ? "smart" : "fast");
      json_.member("role", initiator ? "initiator" : "participant");
      json_.member("begun", series.begun.value());
      histogram(series.duration);
      failures(series.failures);
      json_.member("sent", series.gradients_sent.value());
      json_.member("received", series.gradients_received.value());
    });
  }
  void passes_inside(std::size_t most) {
    json_.array("totals", [&] {
      for (bool smart : {false, true}) {
        for (bool initiator : {false, true}) pass_totals(smart, initiator);
      }
    });
    json_.array("in_flight", [&] {
      for (auto const& pass : worker_.passes()) record(pass);
    });
    json_.array("recent", [&] {
      auto const all = observer_->metrics().pass_history.snapshot();
      for (auto i = all.size() - std::min(all.size(), most); i < all.size(); ++i) record(all[i]);
    });
  }
  void contexts_inside() {
    for (auto const& context : worker_.contexts()) {
      json_.object([&] {
        json_.member("id", to_string(context->id()));
        json_.member("sends", context->sends().size());
        json_.member("recvs", context->recvs().size());
        json_.array("known_workers", [&] {
          for (auto const worker : context->known_workers()) json_.value(name(worker));
        });
        json_.member("gradients", context->gradients().size());
      });
    }
  }
  void graphs_inside() {
    for (auto const id : worker_.recent_contexts()) json_.value(to_string(id));
  }

  Worker const& worker_;
  Observer const* observer_;
  JsonWriter json_;
};

inline std::string graph_json(Worker const& worker, ContextId id) {
  static constexpr char const* kinds[] = {"send", "recv", "leaf", "function"};
  auto const graph = worker.graph_of(id);
  JsonWriter json;
  json.object([&] {
    json.member("name", worker.name());
    json.member("known", graph.has_value());
    if (!graph) return;
    json.member("cut", graph->is_cut);
    json.array("vertices", [&] {
      for (auto const& vertex : graph->vertices) {
        json.object([&] {
          json.member("kind", kinds[std::size_t(vertex.kind)]);
          json.member("name", vertex.name);
          if (!vertex.message.is_valid()) return;
          json.member("message", to_string(vertex.message));
          json.member("peer", worker.find(vertex.peer).name);
        });
      }
    });
    json.array("arrows", [&] {
      for (auto const& arrow : graph->arrows) {
        json.array([&] {
          json.value(arrow.from);
          json.value(arrow.to);
        });
      }
    });
  });
  return json.take();
}

// The context that `to_string` wrote as `text`; invalid if it is none.
inline ContextId context_id_from(std::string_view text) {
  std::uint64_t numbers[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    auto const part = text.substr(0, text.find('/'));
    auto const end = std::from_chars(part.data(), part.data() + part.size(), numbers[i]);
    if (part.empty() || end.ec != std::errc() || end.ptr != part.data() + part.size()) return {};
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  if (!text.empty() || numbers[0] > 0xffffffff || numbers[1] > 0xffffffff) return {};
  return {WorkerId{std::uint32_t(numbers[0])}, Incarnation{std::uint32_t(numbers[1])}, numbers[2]};
}

// What the worker of a live page calls on the others, by names that no program's functions have.
struct LiveState {
  static std::string function_name() { return "distgrad::live_state"; }
  std::string operator()() const { return WorkerState(this_worker()).whole(); }
};
struct LiveGraph {
  static std::string function_name() { return "distgrad::live_graph"; }
  std::string operator()(std::string const& context) const {
    return graph_json(this_worker(), context_id_from(context));
  }
};

}  // namespace distgrad::detail
