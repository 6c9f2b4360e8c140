#pragma once
#include <chrono>
#include <map>
#include <unordered_map>
#include <utility>

#include <distgrad/observe/chrome_trace.hpp>
#include <distgrad/observe/detail/trace_lanes.hpp>
#include <distgrad/observe/json_writer.hpp>
#include <distgrad/version.hpp>

namespace distgrad {
namespace detail {

// Writes one worker's trace. Both ends of an arrow get the same number, which each worker makes
// from what it knows: whose call it is and which, or pass and message.
class ChromeTraceWriter {
 public:
  explicit ChromeTraceWriter(Observer const& observer) : observer_(observer) { sort_events(); }

  std::string write() {
    json_.object([&] {
      json_.member("displayTimeUnit", "ns");
      json_.object("otherData", [&] { about(); });
      json_.array("traceEvents", [&] {
        names();
        for (std::size_t i = 0; i < calls_.size(); ++i) call(calls_[i], spans_[i]);
        for (std::size_t i = 0; i < passes_.size(); ++i) pass(passes_[i], span_of_pass(i));
        for (auto const& mark : marks_) gradient(mark);
      });
    });
    return json_.take();
  }

 private:
  using Span = TraceLanes::Span;
  static constexpr std::size_t home_of_passes = ~std::size_t{0};  // goes last

  // --- where each event is drawn -----------------------------------------------------------------

  void sort_events() {
    auto const* trace = observer_.trace();
    if (!trace) return;
    for (auto const& event : trace->snapshot()) {
      if (auto const* call = std::get_if<CallSpan>(&event)) calls_.push_back(*call);
      if (auto const* pass = std::get_if<PassSpan>(&event)) passes_.push_back(*pass);
      if (auto const* mark = std::get_if<GradientMark>(&event)) marks_.push_back(*mark);
    }
    for (auto const& call : calls_) {
      spans_.push_back(span(call.began, call.ended, thread(call.thread),
                            is_made(call) ? TraceLanes::Kind::call : TraceLanes::Kind::function));
    }
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      auto const& pass = passes_[i];
      // A participant's pass belongs to no thread: several run its parts.
      auto const home = pass.record.is_initiator ? thread(pass.thread) : home_of_passes;
      spans_.push_back(span(pass.began, pass.ended, home, TraceLanes::Kind::pass));
      pass_index_[pass.record.id] = i;
    }
    TraceLanes::assign(spans_);
    for (auto const& span : spans_) tids_[{span.home, span.lane}] = 0;
    int last = 0;
    for (auto& [place, tid] : tids_) tid = ++last;
  }
  Span span(time_point began, time_point ended, std::size_t home, TraceLanes::Kind kind) const {
    auto const begin = nanoseconds(began);
    return {begin, std::max(nanoseconds(ended), begin + 1), home, kind};  // its ends lie inside
  }
  Span const& span_of_pass(std::size_t i) const { return spans_[calls_.size() + i]; }
  std::size_t thread(std::thread::id id) {
    return threads_.try_emplace(id, threads_.size()).first->second;
  }
  std::int64_t nanoseconds(time_point at) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at - observer_.since()).count();
  }
  static bool is_made(CallSpan const& call) { return call.side == CallSpan::Side::caller; }

  // --- text --------------------------------------------------------------------------------------

  void about() {
    auto const wall = observer_.since_on_wall().time_since_epoch();
    json_.member("format", "distgrad trace 1");
    json_.member("worker", observer_.self().name);
    json_.member("rank", observer_.self().id.value);
    json_.member("wall_us", std::chrono::duration_cast<std::chrono::microseconds>(wall).count());
    json_.member("dropped", observer_.trace() ? observer_.trace()->dropped() : 0);
    json_.array("group", [&] {
      for (auto const& peer : observer_.group()) {
        json_.value(peer.info.name + "/" + std::to_string(peer.info.incarnation.value));
      }
    });
  }
  void names() {
    metadata("process_name", 0, [&] { json_.member("name", observer_.self().name); });
    metadata("process_sort_index", 0,
             [&] { json_.member("sort_index", observer_.self().id.value); });
    for (auto const& [place, tid] : tids_) {
      auto const [home, lane] = place;
      auto name =
          home == home_of_passes ? std::string("backward") : "thread " + std::to_string(home + 1);
      if (lane != 0) name += ", at the same time " + std::to_string(lane);
      metadata("thread_name", tid, [&] { json_.member("name", name); });
      metadata("thread_sort_index", tid, [&, t = tid] { json_.member("sort_index", t); });
    }
  }
  template <class Args>
  void metadata(std::string_view name, int tid, Args&& args) {
    json_.object([&] {
      json_.member("ph", "M");
      json_.member("name", name);
      json_.member("pid", observer_.self().id.value);
      json_.member("tid", tid);
      json_.object("args", args);
    });
  }
  template <class More>
  void event(char const* phase, std::string_view name, std::string_view category, Span const& span,
             std::int64_t at, More&& more) {
    json_.object([&] {
      json_.member("ph", phase);
      json_.member("name", name);
      json_.member("cat", category);
      json_.member("pid", observer_.self().id.value);
      json_.member("tid", tids_.at({span.home, span.lane}));
      json_.member("ts", microseconds(at));
      more();
    });
  }
  template <class Args>
  void box(std::string_view name, std::string_view category, Span const& span, Args&& args) {
    event("X", name, category, span, span.begin, [&] {
      json_.member("dur", microseconds(span.end - span.begin));
      json_.object("args", args);
    });
  }
  // One end of an arrow: at `at` of a box, which is never its last moment, where the box is over.
  // A message was here at `passed` already, if it waited before it was looked at.
  void arrow(bool is_start, std::string_view name, std::uint64_t id, Span const& span,
             std::int64_t at, std::int64_t passed) {
    char text[2 + 16] = {'0', 'x'};
    auto const end = std::to_chars(text + 2, text + sizeof text, id, 16).ptr;
    event(is_start ? "s" : "f", name, "message", span, at, [&] {
      json_.member("id", std::string_view(text, std::size_t(end - text)));
      if (!is_start) json_.member("bp", "e");
      json_.object("args", [&] { json_.member("passed", microseconds(passed)); });
    });
  }
  static double microseconds(std::int64_t ns) { return double(ns) / 1000; }
  std::string const& name(WorkerId id) const { return observer_.group()[id.value].info.name; }
  void error(error_code const& code) {
    if (code) json_.member("error", error_name(code));
  }

  // --- events ------------------------------------------------------------------------------------

  void call(CallSpan const& call, Span const& span) {
    auto const caller = is_made(call) ? observer_.self().id : call.peer;
    bool const was_sent = call.call.value != 0;
    bool const was_answered =
        is_made(call) ? call.received_bytes != 0 : call.error != errc::cancelled;
    box(call.function, is_made(call) ? "call" : "function", span, [&] {
      json_.member(is_made(call) ? "to" : "from", name(call.peer));
      json_.member("call", to_string(caller) + "/" + std::to_string(call.call.value));
      if (call.sent_bytes != 0) json_.member("sent_bytes", call.sent_bytes);
      if (call.received_bytes != 0) json_.member("received_bytes", call.received_bytes);
      if (!is_made(call))
        json_.member("waited_us", microseconds(span.begin - nanoseconds(call.arrived)));
      error(call.error);
    });
    auto const there = arrow_id({caller.value, call.call.value, 0});
    auto const back = arrow_id({caller.value, call.call.value, 1});
    if (was_sent) {
      arrow(is_made(call), "call", there, span, span.begin, nanoseconds(call.arrived));
    }
    if (was_sent && was_answered && call.awaits_result) {
      arrow(!is_made(call), "answer", back, span, span.end - 1, span.end);
    }
  }
  void pass(PassSpan const& pass, Span const& span) {
    auto const& record = pass.record;
    box(record.is_smart ? "backward, SMART" : "backward, FAST", "pass", span, [&] {
      json_.member("pass", to_string(record.id));
      json_.member("context", to_string(record.id.context));
      json_.member("initiator", name(record.id.initiator));
      json_.member("gradients_sent", record.gradients_sent);
      json_.member("gradients_received", record.gradients_received);
      error(record.error);
    });
  }
  void gradient(GradientMark const& mark) {
    auto const found = pass_index_.find(mark.pass);
    if (found == pass_index_.end()) return;  // goes on
    auto const& span = span_of_pass(found->second);
    auto const at = nanoseconds(mark.at);
    if (at < span.begin || at >= span.end) return;  // it failed meanwhile
    event("i", mark.is_sent ? "gradient sent" : "gradient received", "gradient", span, at, [&] {
      json_.member("s", "t");
      json_.object("args", [&] {
        json_.member(mark.is_sent ? "to" : "from", name(mark.peer));
        json_.member("message", to_string(mark.message));
        if (mark.is_sent) json_.member("bytes", mark.bytes);
      });
    });
    auto const& [pass, message] = std::pair(mark.pass, mark.message);
    arrow(mark.is_sent, "gradient",
          arrow_id({pass.context.worker.value, pass.context.incarnation.value,
                    pass.context.sequence, pass.initiator.value, pass.sequence,
                    message.worker.value, message.incarnation.value, message.sequence}),
          span, at, at);
  }
  // The same on every machine; numbers that differ give different ones, as good as surely.
  static std::uint64_t arrow_id(std::initializer_list<std::uint64_t> numbers) {
    std::uint64_t hash = numbers.size();
    for (auto const number : numbers) {  // splitmix64's mixing
      hash = (hash ^ number) + 0x9e3779b97f4a7c15;
      hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
      hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
      hash ^= hash >> 31;
    }
    return hash;
  }

  Observer const& observer_;
  JsonWriter json_;
  std::vector<CallSpan> calls_;
  std::vector<PassSpan> passes_;
  std::vector<GradientMark> marks_;
  std::vector<Span> spans_;  // of the calls, then of the passes
  std::unordered_map<PassId, std::size_t> pass_index_;
  std::unordered_map<std::thread::id, std::size_t> threads_;
  std::map<std::pair<std::size_t, std::size_t>, int> tids_;  // by home and lane
};

}  // namespace detail

DISTGRAD_DECL std::string chrome_trace(Observer const& observer) {
  return detail::ChromeTraceWriter(observer).write();
}

}  // namespace distgrad
