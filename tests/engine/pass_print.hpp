#pragma once
// States of the protocols as text, so that they can be compared.

#include <cstdint>
#include <string>
#include <type_traits>

#include <distgrad/engine/pass_protocol.hpp>

namespace pass_model {

using namespace distgrad;

/// Reads private members, so that states can be compared: only what the next event's effect
/// depends on. A member that is added to a protocol belongs here too.
template <class Tag, auto Member>
struct Reveal {
  friend constexpr auto revealed(Tag) { return Member; }
};
#define PASS_MODEL_REVEAL(Class, member)                    \
  struct Tag_##Class##_##member {                           \
    friend constexpr auto revealed(Tag_##Class##_##member); \
  };                                                        \
  template struct Reveal<Tag_##Class##_##member, &Class::member>;
PASS_MODEL_REVEAL(DiscoveryProtocol, finished_)
PASS_MODEL_REVEAL(DiscoveryProtocol, active_)
PASS_MODEL_REVEAL(DiscoveryProtocol, asked_)
PASS_MODEL_REVEAL(DiscoveryProtocol, participants_)
PASS_MODEL_REVEAL(DiscoveryProtocol, last_number_)
PASS_MODEL_REVEAL(DiscoveryProtocol, awaited_)
PASS_MODEL_REVEAL(DiscoveryProtocol, questions_)
PASS_MODEL_REVEAL(DiscoveryProtocol, engaged_by_)
PASS_MODEL_REVEAL(PassProtocol, state_)
PASS_MODEL_REVEAL(PassProtocol, has_started_)
PASS_MODEL_REVEAL(PassProtocol, has_retired_)
PASS_MODEL_REVEAL(PassProtocol, local_complete_)
PASS_MODEL_REVEAL(PassProtocol, sent_to_)
PASS_MODEL_REVEAL(PassProtocol, heard_from_)
PASS_MODEL_REVEAL(PassProtocol, got_)
PASS_MODEL_REVEAL(PassProtocol, has_stopped_)
PASS_MODEL_REVEAL(PassProtocol, aborting_)
PASS_MODEL_REVEAL(PassProtocol, aborter_)
PASS_MODEL_REVEAL(PassProtocol, learned_)
PASS_MODEL_REVEAL(PassProtocol, done_)
PASS_MODEL_REVEAL(PassProtocol, uncommitted_)
PASS_MODEL_REVEAL(PassProtocol, lost_)
#define PASS_MODEL_OF(Class, object, member) ((object).*revealed(Tag_##Class##_##member{}))

/// Writes values so that equal texts mean equal values.
class Print {
 public:
  template <class T>
  Print& operator<<(T const& value) {
    if constexpr (std::is_same_v<T, WorkerId>) {
      text.push_back(char('0' + value.value));
    } else if constexpr (std::is_same_v<T, AutogradMessageId>) {
      text.push_back(char('0' + value.sequence));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      auto const number = static_cast<std::uint64_t>(value);
      for (int i = 0; i < 4; ++i) text.push_back(char(number >> (8 * i)));
    } else if constexpr (requires { value.first; }) {
      *this << value.first << value.second;
    } else if constexpr (requires { value.has_value(); }) {
      text.push_back(value ? '!' : '?');
      if (value) *this << *value;
    } else {
      *this << value.size();
      for (auto const& element : value) *this << element;
    }
    return *this;
  }
  std::string text;
};

inline void print(Print& out, DiscoveryProtocol const& discovery) {
  out << PASS_MODEL_OF(DiscoveryProtocol, discovery, finished_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, active_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, asked_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, participants_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, last_number_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, awaited_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, questions_)
      << PASS_MODEL_OF(DiscoveryProtocol, discovery, engaged_by_);
}

inline void print(Print& out, PassProtocol const& pass) {
  print(out, pass.discovery());
  out << PASS_MODEL_OF(PassProtocol, pass, state_) << PASS_MODEL_OF(PassProtocol, pass, sent_to_)
      << PASS_MODEL_OF(PassProtocol, pass, heard_from_) << PASS_MODEL_OF(PassProtocol, pass, got_)
      << PASS_MODEL_OF(PassProtocol, pass, has_started_)
      << PASS_MODEL_OF(PassProtocol, pass, has_retired_)
      << PASS_MODEL_OF(PassProtocol, pass, local_complete_)
      << PASS_MODEL_OF(PassProtocol, pass, has_stopped_)
      << PASS_MODEL_OF(PassProtocol, pass, aborting_) << PASS_MODEL_OF(PassProtocol, pass, aborter_)
      << PASS_MODEL_OF(PassProtocol, pass, learned_) << PASS_MODEL_OF(PassProtocol, pass, done_)
      << PASS_MODEL_OF(PassProtocol, pass, uncommitted_) << pass.error().has_value();
  for (auto const& [worker, error] : PASS_MODEL_OF(PassProtocol, pass, lost_)) out << worker;
}

}  // namespace pass_model
