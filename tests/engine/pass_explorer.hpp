#pragma once
// Every state that the workers of a pass can get into: all orders of messages, between workers and
// on each link, each message perhaps twice, and one misfortune at any point.

#include "pass_model.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pass_model {

/// What may happen besides the pass itself.
struct Misfortune {
  int copies = 0;            // so many messages, whichever, arrive twice; none about an abort
  bool keeps_order = false;  // messages of one link arrive as they were sent
  int dies = -1;             // this worker, at any point
  int releases = -1;         // this worker forgets the context, at any point
};

/// A state of the whole: of each worker, by number, and the messages on their way.
class Explorer {
 public:
  struct State {
    std::vector<std::uint32_t> parts;
    bool has_happened = false;  // the misfortune
    int copied = 0;
    std::vector<std::uint16_t> network, copies;
  };
  using Check = std::function<void(Explorer const&, State const&)>;

  Explorer(Graph const& graph, Rules rules, Misfortune misfortune)
      : graph_(graph), rules_(rules), misfortune_(misfortune) {}

  /// @param at_each of all states. @param at_end where nothing more happens.
  /// @return what is wrong and how it came to be; empty if nothing is.
  std::string run(Check at_each, Check at_end) {
    at_each_ = std::move(at_each);
    at_end_ = std::move(at_end);
    try {
      State state;
      for (int worker = 0; worker < graph_.workers; ++worker) {
        state.parts.push_back(number_of(Part(graph_, rules_, worker)));
      }
      std::vector<std::uint16_t> sent;
      apply(state, 0, begin, sent);
      post(state, sent, true);
      visit(std::move(state));
    } catch (Broken const& broken) {
      std::string text = broken.what();
      for (auto const& step : path_) text += "\n  " + step_text(step);
      return text;
    }
    return {};
  }

  Graph const& graph() const { return graph_; }
  Rules const& rules() const { return rules_; }
  Part const& part(State const& state, int worker) const { return parts_[state.parts[worker]]; }
  bool is_dead(State const& state, int worker) const {
    return state.has_happened && worker == misfortune_.dies;
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }

 private:
  /// Events beside the arrival of a message, which is its number.
  enum Event : std::uint32_t { begin = 0x10000, turn, discovery, release, death };
  struct Step {
    int worker;
    std::uint32_t event;
  };
  struct Transition {
    std::uint32_t part;
    std::vector<std::uint16_t> sent;
  };

  // --- numbers for parts and messages ---

  std::uint32_t number_of(Part part) {
    auto const [at, is_new] = part_numbers_.try_emplace(part.print(), parts_.size());
    if (is_new) {
      part.sent.clear();
      parts_.push_back(std::move(part));
    }
    return at->second;
  }
  std::uint16_t number_of(Message message) {
    auto const [at, is_new] = message_numbers_.try_emplace(message.text(), messages_.size());
    if (is_new) messages_.push_back(std::move(message));
    require(messages_.size() < begin, "too many messages for this model");
    return std::uint16_t(at->second);
  }
  Transition const& transition(std::uint32_t part, std::uint32_t event) {
    auto const key = std::uint64_t{part} << 32 | event;
    if (auto const at = transitions_.find(key); at != transitions_.end()) return at->second;
    auto next = parts_[part];
    switch (event) {
      case begin: next.begin(); break;
      case turn: next.run(); break;
      case discovery: next.start_discovery(); break;
      case release: next.release_context(); break;
      default: next.deliver(messages_[event]);
    }
    Transition result;
    for (auto& message : next.sent) result.sent.push_back(number_of(std::move(message)));
    result.part = number_of(std::move(next));
    return transitions_.emplace(key, std::move(result)).first->second;
  }

  // --- the network ---

  void apply(State& state, int worker, std::uint32_t event, std::vector<std::uint16_t>& sent) {
    auto const& result = transition(state.parts[worker], event);
    state.parts[worker] = result.part;
    sent = result.sent;
  }
  std::pair<int, int> link(std::uint16_t message) const {
    return {messages_[message].from, messages_[message].to};
  }
  void insert(State& state, std::uint16_t message) const {
    auto& network = state.network;
    auto const at = misfortune_.keeps_order
                        ? std::ranges::upper_bound(network, link(message), {},
                                                   [this](auto other) { return link(other); })
                        : std::ranges::upper_bound(network, message);
    network.insert(at, message);
  }
  static bool can_be_copied(Kind kind) { return kind < Kind::failed; }

  void post(State& state, std::vector<std::uint16_t> const& sent, bool may_copy) {
    for (auto const number : sent) {
      auto const& message = messages_[number];
      if (is_dead(state, message.to)) {
        lose(state, message.to, message.from);
        continue;
      }
      insert(state, number);
      if (may_copy && state.copied < misfortune_.copies && can_be_copied(message.kind)) {
        auto& copies = state.copies;
        copies.insert(std::ranges::upper_bound(copies, number), number);
      }
    }
    drop_what_is_late(state);
  }
  /// `worker` will learn that it lost `dead`, if it does not hear of it anyway.
  void lose(State& state, int dead, int worker) {
    auto const number = number_of(Message{Kind::lost, dead, worker});
    if (std::ranges::count(state.network, number) == 0) insert(state, number);
  }
  /// Messages for a pass that is over change nothing whenever they come: no need to try when.
  void drop_what_is_late(State& state) {
    auto const is_late = [&](std::uint16_t number) {
      auto const to = messages_[number].to;
      auto const part = state.parts[to];
      if (!parts_[part].is_over() || !parts_[part].has_no_state()) return false;
      auto const& result = transition(part, number);
      return result.part == part && result.sent.empty();
    };
    std::erase_if(state.network, is_late);
    std::erase_if(state.copies, is_late);
  }

  // --- the search ---

  static std::string print(State const& state) {
    std::string text;
    auto const put = [&](std::uint32_t n) {
      for (int i = 0; i < 3; ++i) text.push_back(char(n >> (8 * i)));
    };
    for (auto part : state.parts) put(part);
    put(state.has_happened);
    put(std::uint32_t(state.copied));
    for (auto message : state.network) put(message);
    put(0xffffff);
    for (auto message : state.copies) put(message);
    return text;
  }
  void visit(State state) {
    if (!seen_.insert(print(state)).second) return;
    at_each_(*this, state);
    bool const goes_on = step_all(state);
    if (goes_on) return;
    ++ends_;
    at_end_(*this, state);
  }
  /// Copies and misfortunes may come or not: without them a state can be the end.
  bool step_all(State const& state) {
    bool goes_on = false;
    for (std::size_t i = 0; i < state.network.size(); ++i) {
      auto const number = state.network[i];
      bool const is_behind =
          i > 0 && (misfortune_.keeps_order ? link(state.network[i - 1]) == link(number)
                                            : state.network[i - 1] == number);
      if (is_behind) continue;
      goes_on = true;
      auto next = state;
      next.network.erase(next.network.begin() + std::ptrdiff_t(i));
      arrive(std::move(next), number, true);
    }
    for (std::size_t i = 0; i < state.copies.size(); ++i) {
      if (i > 0 && state.copies[i] == state.copies[i - 1]) continue;
      auto next = state;
      next.copies.erase(next.copies.begin() + std::ptrdiff_t(i));
      if (++next.copied == misfortune_.copies) next.copies.clear();
      arrive(std::move(next), state.copies[i], false);
    }
    for (int worker = 0; worker < graph_.workers; ++worker) {
      if (is_dead(state, worker)) continue;
      auto const& part = parts_[state.parts[worker]];
      bool const may_run = part.can_run(), may_ask = part.can_start_discovery();
      goes_on = goes_on || may_run || may_ask;
      if (may_run) step(state, worker, turn);
      if (may_ask) step(state, worker, discovery);
    }
    if (!state.has_happened) suffer(state);
    return goes_on;
  }
  void arrive(State next, std::uint16_t number, bool may_copy) {
    auto const [from, to] = link(number);
    if (messages_[number].kind == Kind::lost) {  // nothing comes from there any more
      std::erase_if(next.network, [&](auto other) { return link(other) == link(number); });
      std::erase_if(next.copies, [&](auto other) { return link(other) == link(number); });
    }
    step(std::move(next), to, number, may_copy);
  }
  void step(State next, int worker, std::uint32_t event, bool may_copy = true) {
    path_.push_back({worker, event});
    std::vector<std::uint16_t> sent;
    apply(next, worker, event, sent);
    post(next, sent, may_copy);
    visit(std::move(next));
    path_.pop_back();
  }
  void suffer(State const& state) {
    if (misfortune_.releases >= 0) {
      auto next = state;
      next.has_happened = true;
      step(std::move(next), misfortune_.releases, release);
    }
    if (misfortune_.dies < 0) return;
    path_.push_back({misfortune_.dies, death});
    auto next = state;
    next.has_happened = true;
    auto const is_for_the_dead = [&](auto number) {
      return messages_[number].to == misfortune_.dies;
    };
    std::erase_if(next.network, is_for_the_dead);
    std::erase_if(next.copies, is_for_the_dead);
    for (int worker = 0; worker < graph_.workers; ++worker) {
      if (worker != misfortune_.dies) lose(next, misfortune_.dies, worker);
    }
    drop_what_is_late(next);
    visit(std::move(next));
    path_.pop_back();
  }

  std::string step_text(Step const& step) const {
    auto const who = " of worker " + std::to_string(step.worker);
    switch (step.event) {
      case begin: return "begin" + who;
      case turn: return "turn" + who;
      case discovery: return "discovery" + who;
      case release: return "release" + who;
      case death: return "death" + who;
      default: return messages_[step.event].text();
    }
  }

  Graph const& graph_;
  Rules rules_;
  Misfortune misfortune_;
  Check at_each_, at_end_;
  std::vector<Part> parts_;
  std::vector<Message> messages_;
  std::unordered_map<std::string, std::uint32_t> part_numbers_, message_numbers_;
  std::unordered_map<std::uint64_t, Transition> transitions_;
  std::unordered_set<std::string> seen_;
  std::vector<Step> path_;
  std::size_t ends_ = 0;
};

}  // namespace pass_model
