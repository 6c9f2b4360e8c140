// What can be sent and received, and near misses: one type per requirement that lacks just that.
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include <distgrad/serialize/codec.hpp>

namespace {

using namespace distgrad;

struct Base {
  int a;
};
struct Derived : Base {
  int b;
};
struct EmptyBase {};
struct DerivedFromEmpty : EmptyBase {
  int b;
};
struct WithArray {
  int a[3];
  int b;
};
struct WithArrayLast {
  std::string b;
  float a[2];
};
struct WithPointer {
  int* a;
};
struct WithFunction {
  std::function<void()> f;
};
union Either {
  int a;
  float b;
};
struct Seventeen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
class Private {
 public:
  Private(int);
};
struct WithView {
  std::string_view text;
};
class HookWithoutDefault {
 public:
  explicit HookWithoutDefault(int a) : a_(a) {}
  [[maybe_unused]] friend auto distgrad_fields(HookWithoutDefault& h) { return std::tie(h.a_); }

 private:
  int a_;
};
struct Nested {
  std::vector<std::pair<std::string, std::array<double, 2>>> a;
  std::optional<at::Tensor> b;
  std::variant<std::monostate, Base> c;
};

static_assert(Encodable<Base> && Decodable<Base>);
static_assert(Encodable<Nested> && Decodable<Nested>);
static_assert(Encodable<EmptyBase> && Decodable<EmptyBase>);
static_assert(Encodable<at::Tensor> && Decodable<std::vector<at::Tensor>>);

static_assert(!Encodable<Derived> && !Encodable<DerivedFromEmpty>);
static_assert(!Encodable<WithArray> && !Encodable<WithArrayLast>);
static_assert(!Encodable<WithPointer> && !Encodable<WithFunction> && !Encodable<Either>);
static_assert(!Encodable<Seventeen> && !Encodable<Private>);
static_assert(!Encodable<int*> && !Encodable<int&> && !Encodable<int const> && !Encodable<int[3]>);
static_assert(!Encodable<long double> && !Encodable<wchar_t> && !Encodable<std::unique_ptr<int>>);
static_assert(!Encodable<std::vector<int*>> && !Encodable<std::tuple<int, int*>> &&
              !Encodable<std::optional<int*>> && !Encodable<std::map<int, int*>> &&
              !Encodable<std::variant<int, int*>> && !Encodable<std::array<int*, 1>>);

// Views can be sent, not received.
static_assert(Encodable<std::string_view> && !Decodable<std::string_view>);
static_assert(Encodable<std::vector<std::string_view>> &&
              !Decodable<std::vector<std::string_view>>);
static_assert(Encodable<WithView> && !Decodable<WithView>);
static_assert(Encodable<HookWithoutDefault> && !Decodable<HookWithoutDefault>);

}  // namespace
