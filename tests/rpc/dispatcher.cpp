#include <distgrad/rpc/dispatcher.hpp>

#include "fake_host.hpp"

#include <doctest/doctest.h>

using namespace distgrad;

namespace {

Message message_of(FrameKind kind, std::uint64_t call = 1) {
  return {.kind = kind, .flags = 0, .call = {call}, .metadata = {}, .buffers = {}};
}

}  // namespace

TEST_CASE("a message goes to the handler of its kind, whole and with its sender") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> calls, replies;
  dispatcher.on(FrameKind::call, [&](WorkerId from, Message m) {
    calls.emplace_back(from.value, m.call.value);
  });
  dispatcher.on(FrameKind::reply, [&](WorkerId from, Message m) {
    replies.emplace_back(from.value, m.call.value);
  });
  dispatcher.on_message({3}, message_of(FrameKind::call, 7));
  dispatcher.on_message({4}, message_of(FrameKind::reply, 8));
  dispatcher.on_message({3}, message_of(FrameKind::call, 9));
  CHECK((calls == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{3, 7}, {3, 9}}));
  CHECK((replies == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{4, 8}}));
  CHECK(host.logged.empty());
}

TEST_CASE("a message of a kind that nobody handles is logged and dropped") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host);
  dispatcher.on_message({1}, message_of(FrameKind::gradient));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0x7f)));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0x80)));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0xffff)));
  CHECK(host.logged.size() == 4);
  CHECK((host.logged[0].first == LogLevel::warning));
}

TEST_CASE("a handler that throws is logged, and the next message is handled") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host);
  int handled = 0;
  dispatcher.on(FrameKind::call, [&](WorkerId, Message) {
    if (++handled == 1) throw std::runtime_error("first");
  });
  dispatcher.on_message({1}, message_of(FrameKind::call));
  dispatcher.on_message({1}, message_of(FrameKind::call));
  CHECK(handled == 2);
  REQUIRE(host.logged.size() == 1);
  CHECK(host.logged[0].second.find("first") != std::string::npos);
}

TEST_CASE("every room learns of a lost peer, even if one of them throws") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host);
  std::vector<int> order;
  for (int room : {1, 2, 3}) {
    dispatcher.on_peer_lost([&order, room](WorkerId peer, error_code why) {
      CHECK(peer == WorkerId{5});
      CHECK(why == errc::closed);
      order.push_back(room);
      if (room == 2) throw std::runtime_error("second");
    });
  }
  dispatcher.on_peer_lost({5}, errc::closed);
  CHECK((order == std::vector{1, 2, 3}));
  CHECK(host.logged.size() == 1);
}

TEST_CASE("payloads land where the serializer says, or nowhere without memory") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host);
  std::vector<std::uint64_t> const lengths{10, 0, 300};
  auto const landing = dispatcher.landing({}, {}, lengths);
  REQUIRE(landing.size() == 3);
  CHECK(landing[2].size_bytes() >= 300);
  CHECK_FALSE(host.landed_for_devices);
  dispatcher.landing({.flags = device_flag}, {}, lengths);
  CHECK(host.landed_for_devices);
  host.landing_fails = true;
  CHECK(dispatcher.landing({}, {}, lengths).empty());
  CHECK(host.logged.size() == 1);
}
