// How a call names its worker, and what may travel to it and back.
#include "simulated.hpp"

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <variant>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

namespace calls_tests {

namespace {
namespace calls {

using distgrad::CallTarget;
using distgrad::errc;
using distgrad::Error;
using distgrad::RRef;
using distgrad::Worker;
using distgrad::WorkerId;
using distgrad::WorkerInfo;

enum class Colour : std::int16_t { red = -1, green = 300 };

struct Point {
  double x = 0, y = 0;
  bool operator==(Point const&) const = default;
};

struct Batch {
  std::string name;
  Colour colour{};
  std::vector<Point> outline;
  std::optional<at::Tensor> data;
  std::map<std::string, at::Tensor> extra;
};

at::Tensor add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor scale(at::Tensor const& x, c10::Scalar const& by) { return x.mul(by); }
at::Tensor nonzero(at::Tensor x) { return x.nonzero(); }
std::string who() { return distgrad::this_worker().name(); }
int sum_of(std::vector<int> values) {
  int sum = 0;
  for (int value : values) sum += value;
  return sum;
}
long negate(long value) noexcept { return -value; }
void nothing() {}
int half(int x) { return x / 2; }
double half(double x) { return x / 2; }

template <class T>
T echo(T value) {
  return value;
}

using Scalars = std::tuple<bool, char, std::int8_t, std::uint64_t, float, double, Colour>;
using Nested = std::map<std::string, std::vector<std::optional<std::pair<int, Point>>>>;
using Choice = std::variant<int, std::string, Point>;
using Tensors = std::tuple<std::vector<at::Tensor>, std::map<int, at::Tensor>,
                           std::array<at::Tensor, 2>, std::pair<std::string, at::Tensor>>;

Batch grow(Batch batch) {
  batch.name += "!";
  batch.outline.push_back({9, 9});
  if (batch.data) batch.data = batch.data->add(1);
  for (auto& [key, tensor] : batch.extra) tensor = tensor.mul(2);
  return batch;
}

std::vector<long> strides_and_sum(at::Tensor x) {
  auto found = x.strides().vec();
  found.push_back(x.sum().item<long>());
  return found;
}
at::Tensor transposed(at::Tensor x) { return x.t(); }

constexpr auto twice = [](int x) { return 2 * x; };

/// Lives on one worker; has state.
class Account {
 public:
  explicit Account(int start) : balance_(start) {}
  int deposit(int amount) { return balance_ += amount; }
  int balance() const noexcept { return balance_; }
  at::Tensor weigh(at::Tensor const& x) const { return x.mul(balance_); }
  void close() { balance_ = 0; }
  static int limit(int level) { return level * 1000; }

 private:
  int balance_;
};
Account open_account(int start) { return Account(start); }

at::Tensor ones(at::IntArrayRef sizes) { return rig::at_home(at::ones(sizes)); }
at::Tensor range(int size, at::ScalarType type = at::kLong) {
  return rig::at_home(at::arange(size, type));
}

void check_targets(Worker& self, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    auto const name = "worker" + std::to_string(rank);
    CHECK(self.rpc_sync<who>(name) == name);
    CHECK(self.rpc_sync<who>(name.c_str()) == name);
    CHECK(self.rpc_sync<who>(std::string_view(name)) == name);
    CHECK(self.rpc_sync<who>(rank) == name);
    CHECK(self.rpc_sync<who>(WorkerId{std::uint32_t(rank)}) == name);
    CHECK(self.rpc_sync<who>(self.find(rank)) == name);
    CHECK(self.rpc_sync<who>(distgrad::within(std::chrono::seconds(30), rank)) == name);
    CHECK(self.rpc_async<who>(name).get() == name);
    CHECK(self.remote<who>(self.find(name)).to_here() == name);
  }
}

void check_unknown_targets(Worker& self) {
  for (CallTarget const target :
       {CallTarget(2), CallTarget(-1), CallTarget(1 << 30), CallTarget("nobody"), CallTarget(""),
        CallTarget("worker"), CallTarget("WORKER1"), CallTarget(WorkerId{7})}) {
    CHECK(rig::error_of([&] { self.rpc_sync<who>(target); }) == errc::unknown_worker);
    CHECK(rig::error_of([&] { self.rpc_async<who>(target); }) == errc::unknown_worker);
    CHECK(rig::error_of([&] { self.remote<who>(target); }) == errc::unknown_worker);
  }
  auto const text = rig::text_of([&] { self.rpc_sync<who>("wroker1"); });
  CHECK(text.find("wroker1") != text.npos);
  CHECK(text.find("worker0") != text.npos);
  CHECK(text.find("worker1") != text.npos);
  CHECK(rig::text_of([&] { self.rpc_sync<who>(-1); }).find("-1") != text.npos);
}

void check_operators(Worker& self) {
  auto const x = range(6, at::kFloat).view({2, 3});
  for (int rank : {0, 1}) {
    CHECK(self.rpc_sync<add>(rank, x, ones({2, 3})).equal(x.add(1)));
    CHECK(self.rpc_sync<add>(rank, x, x).equal(x.mul(2)));
    CHECK(self.rpc_sync<scale>(rank, x, 3).equal(x.mul(3)));
    auto const integers = range(3, at::kLong);
    CHECK((self.rpc_sync<scale>(rank, integers, 0.5).scalar_type() == at::kFloat));
    CHECK(self.rpc_sync<nonzero>(rank, x).equal(x.nonzero()));
  }
}

void check_results_match(Worker& self) {
  std::vector<distgrad::Future<at::Tensor>> sums;
  std::vector<distgrad::Future<int>> numbers;
  for (int i = 0; i < 200; ++i) {
    sums.push_back(self.rpc_async<add>(i % 2, ones({3}).mul(i), ones({3})));
    numbers.push_back(self.rpc_async<twice>(1, i));
  }
  for (int i = 199; i >= 0; --i) {
    CHECK(sums[i].get().equal(ones({3}).mul(i + 1)));
    CHECK(numbers[i].get() == 2 * i);
  }
  CHECK(self.debug_info().pending_calls == 0);
  CHECK(self.debug_info().call_deadlines == 0);
}

void check_values(Worker& self) {
  using namespace std::string_literals;
  Scalars const scalars{true, 'q', std::int8_t(-128), ~0ull, -0.5f, 1e-308, Colour::green};
  CHECK((self.rpc_sync<echo<Scalars>>(1, scalars) == scalars));
  for (auto const& text :
       {""s, "zero\0inside"s, std::string("\xff\xfe"), std::string(100000, 'x')}) {
    CHECK(self.rpc_sync<echo<std::string>>(1, text) == text);
  }
  Nested const nested{{"", {}}, {"a", {std::nullopt, std::pair(1, Point{2, 3})}}};
  CHECK((self.rpc_sync<echo<Nested>>(1, nested) == nested));
  for (Choice const& choice : {Choice(1), Choice("one"), Choice(Point{1, 1})}) {
    CHECK((self.rpc_sync<echo<Choice>>(1, choice) == choice));
  }
  CHECK((self.rpc_sync<echo<WorkerInfo>>(1, self.info()) == self.info()));
  CHECK(self.rpc_sync<sum_of>(1, std::vector{1, 2, 3}) == 6);
  CHECK(self.rpc_sync<negate>(1, 7) == -7);                          // converted by the caller
  CHECK(self.rpc_sync<static_cast<int (*)(int)>(half)>(1, 3) == 1);  // overloads
  CHECK(self.rpc_sync<static_cast<double (*)(double)>(half)>(1, 3) == 1.5);
  self.rpc_sync<nothing>(1);
  self.rpc_async<nothing>(1).get();
}

void check_tensors_in_containers(Worker& self) {
  auto const t = [](int i) { return range(i, at::kInt); };
  Tensors const sent{{t(1), {}, t(0)}, {{-1, t(2)}, {5, t(3)}}, {t(4), t(5)}, {"six", t(6)}};
  auto const got = self.rpc_sync<echo<Tensors>>(1, sent);
  auto const& list = std::get<0>(got);
  REQUIRE(list.size() == 3);
  CHECK(list[0].equal(t(1)));
  CHECK_FALSE(list[1].defined());
  CHECK(list[2].equal(t(0)));
  CHECK(std::get<1>(got).at(-1).equal(t(2)));
  CHECK(std::get<1>(got).at(5).equal(t(3)));
  CHECK(std::get<2>(got)[1].equal(t(5)));
  CHECK(std::get<3>(got).first == "six");
  CHECK(std::get<3>(got).second.equal(t(6)));
}

void check_aggregates(Worker& self) {
  Batch const sent{"b", Colour::red, {{1, 2}}, ones({2}), {{"w", ones({1})}}};
  auto const got = self.rpc_sync<grow>(1, sent);
  CHECK(got.name == "b!");
  CHECK((got.colour == Colour::red));
  CHECK((got.outline == std::vector<Point>{{1, 2}, {9, 9}}));
  CHECK(got.data->equal(ones({2}).add(1)));
  CHECK(got.extra.at("w").equal(ones({1}).mul(2)));
  CHECK(sent.data->equal(ones({2})));  // the callee works on copies
  CHECK_FALSE(self.rpc_sync<grow>(1, Batch{}).data);
}

void check_members(Worker& self, int owner) {
  auto const account = self.remote<open_account>(owner, 10);
  CHECK(account.rpc_sync<&Account::balance>() == 10);
  CHECK(account.rpc_sync<&Account::deposit>(5) == 15);
  CHECK(self.rpc_sync<&Account::deposit>(owner, account, 5) == 20);
  CHECK(account.rpc_async<&Account::balance>().get() == 20);
  CHECK(account.remote<&Account::deposit>(1).to_here() == 21);
  CHECK(account.rpc_sync<&Account::weigh>(ones({2})).equal(ones({2}).mul(21)));
  account.rpc_sync<&Account::close>();
  CHECK(account.rpc_sync<&Account::balance>() == 0);
  CHECK(rig::error_of([&] { self.rpc_sync<&Account::balance>(1 - owner, account); }) ==
        errc::not_owner);
}

void check_strides(Worker& self) {
  auto const base = range(24, at::kLong).view({2, 3, 4});
  for (auto const& x : {base.permute({2, 0, 1}), base.transpose(0, 2), base.select(0, 1).t()}) {
    auto const got = self.rpc_sync<strides_and_sum>(1, x);
    CHECK((std::vector(got.begin(), got.end() - 1) == x.strides().vec()));
    CHECK(got.back() == x.sum().item<long>());
    auto const back = self.rpc_sync<echo<at::Tensor>>(1, x);
    CHECK((back.strides() == x.strides()));
    CHECK(back.equal(x));
  }
  auto const matrix = range(6).view({2, 3});
  auto const result = self.rpc_sync<transposed>(1, matrix);
  CHECK((result.strides() == matrix.t().strides()));
  CHECK(result.equal(matrix.t()));
  // A view ships what it shows, not the storage it was cut from; dimensions keep their order.
  auto const cut = self.rpc_sync<echo<at::Tensor>>(1, base.select(1, 1).t());
  CHECK(cut.equal(base.select(1, 1).t()));
  CHECK((cut.strides().vec() == std::vector<std::int64_t>{1, 4}));
  auto const gaps = range(1000).slice(0, 0, 1000, 100);
  auto const dense = self.rpc_sync<echo<at::Tensor>>(1, gaps);
  CHECK(dense.equal(gaps));
  CHECK(dense.storage().nbytes() == 10 * sizeof(long));
}

}  // namespace calls
}  // namespace

TEST_CASE_TEMPLATE("[RPC-13] a worker is named by name, rank, id or info, itself included", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  for (auto& engine : cluster) calls::check_targets(*engine, 2);
}

TEST_CASE_TEMPLATE("[RPC-13] a call to a worker that does not exist fails on the caller", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  calls::check_unknown_targets(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-13] operators compute on the callee as they do here", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  calls::check_operators(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-14] of many outstanding calls each future gets its own result", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  calls::check_results_match(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-15] arguments and results of every kind arrive", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  calls::check_values(cluster[0]);
  calls::check_tensors_in_containers(cluster[0]);
  calls::check_aggregates(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-15] lambdas, static and ordinary member functions can be called", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  CHECK(cluster[0].template rpc_sync<calls::twice>(1, 21) == 42);
  CHECK(cluster[0].template rpc_sync<&calls::Account::limit>(1, 3) == 3000);
  calls::check_members(cluster[0], 1);
  calls::check_members(cluster[0], 0);
}

TEST_CASE_TEMPLATE("[RPC-17] tensors keep their strides in both directions", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  calls::check_strides(cluster[0]);
}

}  // namespace calls_tests
