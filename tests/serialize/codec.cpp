#include <distgrad/serialize/codec.hpp>
//
#include <chrono>
#include <complex>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include <doctest/doctest.h>

#include <distgrad/testing/tensor_samples.hpp>

namespace codec_tests {

namespace {

using namespace distgrad;
using namespace std::string_literals;

// Values as they travel.
struct Sent {
  std::vector<std::byte> bytes;
  std::vector<at::Tensor> tensors;
};

Services const no_services;

template <class... T>
Sent send(T const&... values) {
  Writer writer;
  Sent sent;
  Encoder to{writer, sent.tensors, WorkerId{1}, no_services};
  encode_values(to, values...);
  sent.bytes = writer.take();
  return sent;
}

template <class... T>
std::tuple<T...> receive(Sent const& sent) {
  Reader reader(sent.bytes);
  Decoder from{reader, sent.tensors, WorkerId{2}, no_services};
  auto values = decode_values<T...>(from);
  CHECK(reader.at_end());
  return values;
}

template <class T>
T round_trip(T const& value) {
  return std::get<0>(receive<T>(send(value)));
}

template <class... T>
bool arrives(T const&... values) {
  return ((round_trip(values) == values) && ...);
}

template <class... T>
bool is_refused(Sent const& sent) {
  try {
    receive<T...>(sent);
    return false;
  } catch (Error const& e) {
    CHECK(e.code() == errc::bad_value);
    return true;
  }
}

enum class Color : std::uint8_t { red = 1, blue = 200 };
enum Plain { zero, one };

struct Point {
  double x = 0, y = 0;
  friend bool operator==(Point const&, Point const&) = default;
};
struct Line {
  std::string name;
  std::optional<Point> from;
  std::vector<Point> through;
  Color color = Color::red;
  friend bool operator==(Line const&, Line const&) = default;
};
struct Empty {
  friend bool operator==(Empty const&, Empty const&) = default;
};
struct Sixteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o;
  std::string p;
  friend bool operator==(Sixteen const&, Sixteen const&) = default;
};
struct Batch {
  at::Tensor input;
  std::vector<at::Tensor> states;
  std::map<std::string, at::Tensor> named;
};
struct Owned {
  std::unique_ptr<int> pointer;
};
class Hidden {
 public:
  Hidden() = default;
  Hidden(int a, std::string b) : a_(a), b_(std::move(b)) {}
  friend bool operator==(Hidden const&, Hidden const&) = default;
  friend auto distgrad_fields(Hidden& h) { return std::tie(h.a_, h.b_); }

 private:
  int a_ = 0;
  std::string b_;
  int cache_ = 0;
};

class Throwing {
 public:
  Throwing() = default;
  explicit Throwing(int) { throw std::runtime_error("no value"); }
  friend auto distgrad_fields(Throwing& t) { return std::tie(t.text_); }

 private:
  std::string text_;
};

}  // namespace
}  // namespace codec_tests

template <>
struct distgrad::Codec<codec_tests::Owned> {
  static constexpr std::uint64_t signature = fnv1a("Owned");
  static void encode(Encoder& to, codec_tests::Owned const& value) {
    to.writer.number(*value.pointer);
  }
  static codec_tests::Owned decode(Decoder& from) {
    return {std::make_unique<int>(from.reader.number<int>())};
  }
};

namespace codec_tests {
namespace {

TEST_CASE("numbers arrive with all their bits") {
  CHECK(arrives(true, false, 'x', std::int8_t{-128}, std::uint8_t{255}, std::int16_t{-32768},
                std::uint16_t{65535}, std::numeric_limits<int>::min(), ~0u,
                std::numeric_limits<long>::min(), ~0ull, 1.5f, -0.1, 'x'));
  CHECK(std::isnan(round_trip(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::signbit(round_trip(-0.0f)));
}

TEST_CASE("strings arrive with zeros in them and at any length") {
  CHECK(arrives(""s, "a"s, "null \0 inside"s, std::string(100000, 'q')));
  CHECK(std::get<0>(receive<std::string>(send(std::string_view("view")))) == "view");
}

TEST_CASE("enumerations arrive as their number") {
  CHECK(arrives(Color::red, Color::blue, zero, one));
  CHECK(send(Color::blue).bytes.size() == 1);
}

TEST_CASE("containers arrive, nested and empty") {
  CHECK(arrives(std::vector<int>{}, std::vector<int>{1, 2, 3}, std::vector<bool>{true, false, true},
                std::vector<std::string>{"", "b"}, std::array<int, 3>{7, 8, 9},
                std::array<std::string, 2>{"x", "y"}, std::set<int>{3, 1},
                std::unordered_set<std::string>{"p", "q"}, std::map<int, std::string>{{1, "one"}},
                std::unordered_map<std::string, std::vector<double>>{{"a", {1, 2}}, {"b", {}}}));
  CHECK(arrives(std::vector<std::map<std::string, std::optional<std::pair<int, float>>>>{
      {{"x", std::pair{1, 2.5f}}, {"y", std::nullopt}}, {}}));
  CHECK(round_trip(std::array<int, 0>{}).size() == 0);
}

TEST_CASE("optional, pair, tuple and variant arrive") {
  using V = std::variant<int, std::string, std::monostate, int>;
  CHECK(arrives(std::optional<int>{}, std::optional<int>{3}, std::pair{1, "p"s},
                std::tuple{1, 2.5, "t"s}, std::tuple<>{}, std::tuple{std::tuple{1}},
                std::optional<std::optional<int>>{std::optional<int>{}}));
  CHECK(arrives(V{std::in_place_index<0>, 5}, V{"text"}, V{std::monostate()},
                V{std::in_place_index<3>, 6}));
}

TEST_CASE("a variant without a value is refused by its sender") {
  std::variant<int, Throwing> value = 1;
  CHECK_THROWS(value.emplace<Throwing>(2));
  REQUIRE(value.valueless_by_exception());
  CHECK_THROWS_AS(send(value), Error);
}

TEST_CASE("durations, complex numbers, scalars and devices arrive") {
  using namespace std::chrono_literals;
  CHECK(arrives(std::chrono::milliseconds(-5), std::chrono::duration<double>(0.25), 3h,
                std::complex<double>(1, -2), c10::Device(c10::DeviceType::CUDA, 2),
                c10::Device(c10::DeviceType::CPU)));
  CHECK(round_trip(at::Scalar(true)).isBoolean());
  CHECK(round_trip(at::Scalar(std::int64_t{1} << 60)).toLong() == std::int64_t{1} << 60);
  CHECK(round_trip(at::Scalar(0.1)).toDouble() == 0.1);
  CHECK(round_trip(at::Scalar(c10::complex<double>(1, 2))).toComplexDouble() ==
        c10::complex<double>(1, 2));
}

TEST_CASE("ids and workers arrive") {
  ContextId const context{{3}, {77}, 9};
  CHECK(arrives(WorkerId{4}, Incarnation{5}, CallId{6}, context, RRefId{{1}, {2}, 3},
                PassId{context, {1}, 2}, WorkerInfo{"ps0", {2}, {8}}, Void(), std::monostate()));
}

TEST_CASE("aggregates arrive field by field, without being declared anywhere") {
  CHECK(arrives(Point{1, 2}, Line{"l", Point{0, 1}, {{1, 2}, {3, 4}}, Color::blue}, Line(), Empty(),
                std::vector<Empty>(5),
                Sixteen{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "16"}));
}

TEST_CASE("a class with the hook arrives with the fields it ties") {
  CHECK(arrives(Hidden(3, "h"), std::vector<Hidden>{{1, "a"}, {2, "b"}}));
}

TEST_CASE("a codec of one's own is used, also inside containers") {
  CHECK(*round_trip(Owned{std::make_unique<int>(7)}).pointer == 7);
  std::vector<Owned> list;
  list.push_back({std::make_unique<int>(8)});
  CHECK(*round_trip(list).at(0).pointer == 8);
}

TEST_CASE("tensors inside values are collected in order and found again") {
  auto const a = testing::dense(at::kFloat, {2}), b = testing::dense(at::kInt, {3});
  Batch const batch{a, {b, at::Tensor(), a}, {{"k", b}}};
  auto const sent = send(1, batch, std::optional<at::Tensor>(b));
  REQUIRE(sent.tensors.size() == 6);
  CHECK(sent.tensors[0].is_same(a));
  CHECK(sent.tensors[1].is_same(b));
  auto const [number, got, last] = receive<int, Batch, std::optional<at::Tensor>>(sent);
  CHECK(got.input.is_same(a));
  CHECK(got.states.size() == 3);
  CHECK(!got.states[1].defined());
  CHECK(got.named.at("k").is_same(b));
  CHECK(last->is_same(b));
}

TEST_CASE("values are read in the order they were written") {
  auto const sent = send(1, "two"s, 3.0, Point{4, 5});
  auto const [a, b, c, d] = receive<int, std::string, double, Point>(sent);
  CHECK(a == 1);
  CHECK(b == "two");
  CHECK(c == 3);
  CHECK(d == Point{4, 5});
}

TEST_CASE("a value that is cut off anywhere is refused") {
  auto const sent = send(Line{"l", Point{0, 1}, {{1, 2}}, Color::blue}, std::map<int, int>{{1, 2}});
  for (std::size_t size = 0; size < sent.bytes.size(); ++size) {
    auto cut = sent;
    cut.bytes.resize(size);
    CHECK(is_refused<Line, std::map<int, int>>(cut));
  }
}

TEST_CASE("an announced length takes no memory before its elements are there") {
  Writer writer;
  writer.number(std::uint64_t{1} << 60);
  Sent const lie{writer.take(), {}};
  CHECK(is_refused<std::vector<Point>>(lie));
  CHECK(is_refused<std::vector<std::uint64_t>>(lie));
  CHECK(is_refused<std::vector<bool>>(lie));
  CHECK(is_refused<std::string>(lie));
  CHECK(is_refused<std::set<int>>(lie));
  CHECK(is_refused<std::map<int, int>>(lie));
  CHECK(is_refused<std::vector<at::Tensor>>(lie));
  CHECK(is_refused<std::vector<Empty>>(lie));
}

TEST_CASE("malformed choices are refused") {
  auto const raw = [](auto... numbers) {
    Writer writer;
    (writer.number(numbers), ...);
    return Sent{writer.take(), {}};
  };
  CHECK(is_refused<std::optional<int>>(raw(std::uint8_t{2}, 1)));
  CHECK(is_refused<std::variant<int, float>>(raw(2u, 1)));
  CHECK(is_refused<Void>(raw(std::uint8_t{1})));
  CHECK(is_refused<at::Scalar>(raw(std::uint8_t{4}, std::uint64_t{0})));
  CHECK(is_refused<c10::Device>(raw(std::int8_t{0}, std::int8_t{1})));
  CHECK(is_refused<c10::Device>(raw(std::int8_t{-1}, std::int8_t{0})));
  CHECK(is_refused<c10::Device>(raw(std::int8_t{1}, std::int8_t{-2})));
  CHECK(is_refused<std::set<int>>(raw(std::uint64_t{2}, 5, 5)));
  CHECK(is_refused<std::map<int, int>>(raw(std::uint64_t{2}, 5, 1, 5, 2)));
  CHECK(is_refused<at::Tensor>(raw(0u)));
}

TEST_CASE("a bool from a peer is true or false, whatever its byte") {
  Sent const odd{{std::byte{2}}, {}};
  CHECK(std::get<0>(receive<bool>(odd)) == true);
}

TEST_CASE("no change of the bytes makes decoding crash") {
  using Values = std::tuple<Line, std::map<std::string, std::vector<std::string>>,
                            std::variant<int, std::string, Hidden>, Batch, at::Scalar, c10::Device>;
  auto const tensor = testing::dense(at::kFloat, {2});
  auto const whole = send(Values{{"l", Point{0, 1}, {{1, 2}}, Color::blue},
                                 {{"a", {"b", "c"}}, {"d", {}}},
                                 Hidden(1, "h"),
                                 {tensor, {tensor}, {{"t", tensor}}},
                                 2.5,
                                 c10::DeviceType::CPU});
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    auto changed = whole;
    for (auto changes = 1 + random() % 3; changes-- > 0;) {
      auto& byte = changed.bytes[random() % changed.bytes.size()];
      byte = random() % 2 ? std::byte(random()) : std::byte{0xff};
    }
    Reader reader(changed.bytes);
    Decoder from{reader, changed.tensors, WorkerId{2}, no_services};
    try {
      decode_values<Values>(from);
    } catch (Error const& e) {
      ++refused;
      CHECK(e.code() == errc::bad_value);
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("a codec finds the services of its engine, its peer, and can hold user code back") {
  struct Table {
    int value = 0;
  } table;
  Services services;
  CHECK(services.find<Table>() == nullptr);
  services.add(table);
  CHECK(services.find<Table>() == &table);
  CHECK(services.find<int>() == nullptr);
  Table other;
  services.add(other);
  CHECK(services.find<Table>() == &other);

  auto const sent = send(1);
  Reader reader(sent.bytes);
  Decoder from{reader, {}, WorkerId{2}, services};
  bool asked = false;
  from.hold([&asked](auto done) {
    asked = true;
    done(nullptr);
  });
  REQUIRE(from.conditions.size() == 1);
  bool is_done = false;
  from.conditions[0]([&is_done](std::exception_ptr) { is_done = true; });
  CHECK(asked);
  CHECK(is_done);
}

}  // namespace

}  // namespace codec_tests
