#pragma once
// Short words for the tests of the protocols of a pass.

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <distgrad/engine/pass_protocol.hpp>

namespace protocol_words {

using namespace distgrad;

inline constexpr WorkerId w0{0}, w1{1}, w2{2}, w3{3};
using Ids = std::vector<WorkerId>;
using Messages = std::vector<AutogradMessageId>;

inline AutogradMessageId sent_by(WorkerId worker, std::uint64_t number) {
  return {worker, Incarnation{4}, number};
}

/// A part in a pass of w0.
inline PassProtocol part_of(WorkerId self, PassOptions options) { return {self, w0, options}; }
inline PassProtocol part_of(WorkerId self, bool commits_globally = false) {
  return part_of(self, {.commits_globally = commits_globally});
}

inline WireError broken() { return {errc::pass_failed, "w9", "MulBackward0", {}, "broken"}; }

inline PassStatus idle(std::uint32_t round, std::uint64_t sent, std::uint64_t received,
                       std::set<WorkerId> peers = {}) {
  return {round, true, sent, received, std::move(peers), {}, {}};
}
/// What a worker says for the last time.
inline PassStatus last(std::uint64_t sent, std::uint64_t received, std::set<WorkerId> peers = {}) {
  return idle(0, sent, received, std::move(peers));
}

inline bool is_nothing(DiscoveryActions const& a) {
  return a.discover.empty() && a.discovered.empty() && !a.finished;
}
/// Nothing that another worker hears of.
inline bool is_silent(PassActions const& a) {
  return a.discovery.discover.empty() && a.discovery.discovered.empty() && !a.send_done &&
         !a.send_failed && !a.send_committed && a.release.empty() && a.commit.empty() &&
         a.abort.empty() && a.aborted.empty() && a.query.empty();
}
inline bool is_nothing(PassActions const& a) {
  return is_silent(a) && !a.discovery.finished && !a.retire && !a.stop && !a.finished &&
         a.query_round == 0;
}
inline bool only_finishes(PassActions const& a) { return is_silent(a) && a.finished && !a.stop; }

}  // namespace protocol_words
