// What can be sent and received, and near misses: one type per requirement that lacks just that.
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include <distgrad/serialize/archetype.hpp>
#include <distgrad/serialize/codec.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/serialize/serializer.hpp>

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

// A model from which the near misses are derived; a member of the same name hides what is here.
struct Model {
  using contract = serializer_v1;
  struct Options {};
  explicit Model(Options) {}
  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>) const;
  ReceivedTensors unpack(Reader&, std::span<Buffer const>) const;
  std::vector<Buffer> landing(std::span<std::uint64_t const>) const;
};
static_assert(SerializerPolicy<Model>);
static_assert(SerializerPolicy<SerializerArchetype> && SerializerPolicy<TensorSerializer>);

struct OtherContract : Model {
  using Model::Model;
  struct contract {};
};
struct NoDefaultOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoDefaultOptions(Options) : Model(Model::Options()) {}
};
struct NotMadeOfOptions : Model {
  NotMadeOfOptions() : Model(Options()) {}
};
struct PackIsNotConst : Model {
  using Model::Model;
  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>);
};
struct UnpackLosesFlags : Model {
  using Model::Model;
  std::vector<at::Tensor> unpack(Reader&, std::span<Buffer const>) const;
};
struct UnpackIsNotConst : Model {
  using Model::Model;
  ReceivedTensors unpack(Reader&, std::span<Buffer const>);
};
struct LandsOnlyOne : Model {
  using Model::Model;
  Buffer landing(std::span<std::uint64_t const>) const;
};
static_assert(!SerializerPolicy<OtherContract>);
static_assert(!SerializerPolicy<NoDefaultOptions>);
static_assert(!SerializerPolicy<NotMadeOfOptions>);
static_assert(!SerializerPolicy<PackIsNotConst>);
static_assert(!SerializerPolicy<UnpackLosesFlags>);
static_assert(!SerializerPolicy<UnpackIsNotConst>);
static_assert(!SerializerPolicy<LandsOnlyOne>);
static_assert(!SerializerPolicy<int>);

}  // namespace
