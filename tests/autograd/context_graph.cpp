#include <distgrad/autograd/context_dot.hpp>
#include <distgrad/autograd/context_graph.hpp>
#include <distgrad/autograd/context_history.hpp>

#include <doctest/doctest.h>

#include <ATen/ops/ones.h>

#include <algorithm>

namespace context_graph_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

using Kind = ContextGraph::Kind;

ContextId context_id(std::uint64_t n) { return {WorkerId{0}, Incarnation{1}, n}; }
AutogradMessageId message(std::uint64_t n) { return {WorkerId{0}, Incarnation{1}, n}; }

std::size_t find(ContextGraph const& graph, Kind kind, std::string const& name) {
  auto const at = std::ranges::find_if(graph.vertices, [&](auto const& vertex) {
    return vertex.kind == kind && vertex.name.starts_with(name);
  });
  REQUIRE(at != graph.vertices.end());
  return std::size_t(at - graph.vertices.begin());
}
bool has_arrow(ContextGraph const& graph, std::size_t from, std::size_t to) {
  return std::ranges::count(graph.arrows, ContextGraph::Arrow{from, to}) == 1;
}

}  // namespace

TEST_CASE("a graph goes from what was sent to what was received and to the leaves") {
  DistAutogradContext context(context_id(5));
  std::vector<at::Tensor> received{at::ones({3, 2})};
  context.add_recv(message(1), WorkerId{1}, received);
  auto const weight = at::ones({3, 2}).set_requires_grad(true);
  auto const result = received[0].mul(weight);
  context.add_send(message(2), WorkerId{2}, std::vector{result, result});

  auto const graph = describe_graph(context);
  CHECK(graph.context == context.id());
  CHECK_FALSE(graph.is_cut);
  CHECK(graph.vertices.size() == 4);
  auto const send = find(graph, Kind::send, ""), recv = find(graph, Kind::recv, "");
  auto const product = find(graph, Kind::function, "MulBackward");
  auto const leaf = find(graph, Kind::leaf, "[3, 2]");
  CHECK(has_arrow(graph, send, product));  // one, though two tensors lead there
  CHECK(has_arrow(graph, product, recv));
  CHECK(has_arrow(graph, product, leaf));
  CHECK(graph.arrows.size() == 3);
  CHECK(graph.vertices[send].message == message(2));
  CHECK(graph.vertices[send].peer == WorkerId{2});
  CHECK(graph.vertices[recv].message == message(1));
  CHECK(graph.vertices[recv].peer == WorkerId{1});
}

TEST_CASE("what was received and leads nowhere yet is there; a large graph is cut") {
  DistAutogradContext context(context_id(5));
  std::vector<at::Tensor> received{at::ones({2})};
  context.add_recv(message(1), WorkerId{1}, received);
  CHECK(describe_graph(context).vertices.size() == 1);
  auto result = received[0];
  for (int i = 0; i < 50; ++i) result = result.neg();
  context.add_send(message(2), WorkerId{2}, std::vector{result});
  auto const graph = describe_graph(context, 10);
  CHECK(graph.is_cut);
  CHECK(graph.vertices.size() == 10);
  for (auto const& arrow : graph.arrows) CHECK(std::max(arrow.from, arrow.to) < 10);
  CHECK(describe_graph(context, 52).vertices.size() == 52);
}

TEST_CASE("a drawing joins what workers sent each other") {
  DistAutogradContext one(context_id(5)), other(context_id(5));
  auto const weight = at::ones({3, 2}).set_requires_grad(true);
  one.add_send(message(1), WorkerId{1}, std::vector{weight.neg()});
  std::vector<at::Tensor> received{at::ones({3, 2})};
  other.add_recv(message(1), WorkerId{0}, received);
  other.add_send(message(2), WorkerId{2}, std::vector{received[0].neg()});

  auto const dot = to_dot({{"a \"b\"", describe_graph(one)}, {"c", describe_graph(other)}});
  auto const has = [&](std::string const& line) {
    CAPTURE(line);
    auto const at = dot.find(line + ";\n");
    CHECK(at != std::string::npos);
    CHECK(dot.find(line + ";\n", at + 1) == std::string::npos);
  };
  has(R"(    label="a \"b\"")");
  has(R"(    label="c")");
  has(R"(    "0.2" [label="leaf [3, 2]", style=bold])");
  has(R"(    "send 0/1/1" -> "0.1")");
  has(R"(    "0.1" -> "0.2")");
  has(R"(    "1.2" -> "recv 0/1/1")");
  has(R"(  "recv 0/1/1" -> "send 0/1/1" [style=dashed])");
  // Of whom there is no part.
  has(R"(  "recv 0/1/2" [label="rank 2", style=dotted])");
  has(R"(  "recv 0/1/2" -> "send 0/1/2" [style=dashed])");
  CHECK(std::ranges::count(dot, '{') == 3);
  CHECK(std::ranges::count(dot, '}') == 3);
}

TEST_CASE("slow contexts are all kept, the newest of them") {
  ContextHistory history;
  time_point now{};
  for (std::uint64_t n = 1; n <= ContextHistory::capacity + 5; ++n) {
    now += 500ms;
    if (history.wants(context_id(n), now)) history.add({context_id(n), {}, {}, false});
  }
  auto const ids = history.ids();
  REQUIRE(ids.size() == ContextHistory::capacity);
  CHECK(ids.front() == context_id(6));
  CHECK(history.find(ids.back()).has_value());
  CHECK_FALSE(history.find(context_id(5)).has_value());
}

TEST_CASE("of fast contexts a few a second are kept, the same on every worker") {
  ContextHistory one, other;
  time_point now{};
  std::size_t kept = 0, both = 0;
  for (std::uint64_t n = 1; n <= 10000; ++n) {
    now += 1ms;
    bool const here = one.wants(context_id(n), now),
               there = other.wants(context_id(n), now + 300us);
    if (n <= 2000) continue;  // until the rate is known
    kept += here;
    both += here && there;
  }
  CHECK(kept >= 8);
  CHECK(kept <= 100);
  CHECK(both * 2 >= kept);
}

}  // namespace context_graph_tests
