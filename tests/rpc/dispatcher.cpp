#include <distgrad/rpc/dispatcher.hpp>

#include <distgrad/rpc/agent.hpp>

#include "fake_host.hpp"

#include <doctest/doctest.h>

namespace dispatcher_tests {

using namespace distgrad;

namespace {

Message message_of(FrameKind kind, std::uint64_t call = 1) {
  return {.kind = kind, .flags = 0, .call = {call}, .metadata = {}, .buffers = {}};
}

Membership const& group_of_two() {
  static Membership const group({0}, {{"trainer", {0}, {}}, {"ps0", {1}, {}}});
  return group;
}

}  // namespace

TEST_CASE("a message goes to the handler of its kind, whole and with its sender") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host, group_of_two());
  std::vector<std::pair<std::uint32_t, std::uint64_t>> calls, replies;
  dispatcher.on(FrameKind::call,
                [&](WorkerId from, Message m) { calls.emplace_back(from.value, m.call.value); });
  dispatcher.on(FrameKind::reply,
                [&](WorkerId from, Message m) { replies.emplace_back(from.value, m.call.value); });
  dispatcher.on_message({3}, message_of(FrameKind::call, 7));
  dispatcher.on_message({4}, message_of(FrameKind::reply, 8));
  dispatcher.on_message({3}, message_of(FrameKind::call, 9));
  CHECK((calls == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{3, 7}, {3, 9}}));
  CHECK((replies == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{4, 8}}));
  CHECK(host.logged.all().empty());
}

TEST_CASE("a message of a kind that nobody handles is logged and dropped") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host, group_of_two());
  dispatcher.on_message({1}, message_of(FrameKind::gradient));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0x7f)));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0x80)));
  dispatcher.on_message({1}, message_of(static_cast<FrameKind>(0xffff)));
  auto const logged = host.logged.all();
  REQUIRE(logged.size() == 4);
  CHECK((logged[0].level == LogLevel::warning));
  CHECK(logged[0].fields.at("kind") == "0x40");
  CHECK(logged[0].fields.at("peer") == "ps0");
  CHECK(logged[3].fields.at("kind") == "0xffff");
}

TEST_CASE("a handler that throws is logged, and the next message is handled") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host, group_of_two());
  int handled = 0;
  dispatcher.on(FrameKind::call, [&](WorkerId, Message) {
    if (++handled == 1) throw std::runtime_error("first");
  });
  dispatcher.on_message({1}, message_of(FrameKind::call));
  dispatcher.on_message({1}, message_of(FrameKind::call));
  CHECK(handled == 2);
  auto const logged = host.logged.all();
  REQUIRE(logged.size() == 1);
  CHECK((logged[0].level == LogLevel::error));
  CHECK((logged[0].fields ==
         log_book::Fields{{"kind", "0x10"}, {"peer", "ps0"}, {"reason", "first"}}));
}

TEST_CASE("every room learns of a lost peer, even if one of them throws") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host, group_of_two());
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
  REQUIRE(host.logged.all().size() == 1);
  CHECK(host.logged.all()[0].fields.at("reason") == "second");
}

TEST_CASE("payloads land where the serializer says, or nowhere without memory") {
  fake_host::FakeHost host;
  Dispatcher dispatcher(host, group_of_two());
  std::vector<std::uint64_t> const lengths{10, 0, 300};
  auto const landing = dispatcher.landing({}, {}, lengths);
  REQUIRE(landing.size() == 3);
  CHECK(landing[2].size_bytes() >= 300);
  CHECK_FALSE(host.landed_for_devices);
  FrameHeader for_device{};
  for_device.flags = device_flag;
  dispatcher.landing(for_device, {}, lengths);
  CHECK(host.landed_for_devices);
  host.landing_fails = true;
  CHECK(dispatcher.landing({}, {}, lengths).empty());
  REQUIRE(host.logged.all().size() == 1);
  CHECK(host.logged.all()[0].text == "no memory for a message");
}

TEST_CASE("a peer that was lost is logged as a warning, one that left is not") {
  auto const host = std::make_shared<fake_host::FakeHost>();
  RpcAgent agent(host, group_of_two(), std::chrono::seconds(60));
  agent.dispatcher().on_peer_lost({1}, errc::peer_lost);
  agent.dispatcher().on_peer_lost({1}, errc::closed);
  auto const logged = host->logged.all();
  REQUIRE(logged.size() == 2);
  CHECK((logged[0].level == LogLevel::warning));
  CHECK(logged[0].text == "a peer was lost");
  CHECK(logged[0].fields.at("peer") == "ps0");
  CHECK(logged[0].fields.at("error") == "peer_lost");
  CHECK((logged[1].level == LogLevel::info));
  CHECK(logged[1].text == "a peer left");
}

}  // namespace dispatcher_tests
