#include <distgrad/raw/raw_message.hpp>
//
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <distgrad/raw/raw_codec.hpp>
#include <distgrad/rpc/function.hpp>
#include <distgrad/serialize/codec.hpp>
#include <distgrad/serialize/serializer.hpp>

#include <doctest/doctest.h>

namespace raw_message_tests {

namespace {
namespace raw_message {

using namespace distgrad;

constexpr ElementType all_types[] = {
    ElementType::u8,     ElementType::i8,        ElementType::i16,       ElementType::i32,
    ElementType::i64,    ElementType::f16,       ElementType::f32,       ElementType::f64,
    ElementType::bf16,   ElementType::complex32, ElementType::complex64, ElementType::complex128,
    ElementType::boolean};

at::Tensor sample(ElementType type, std::vector<std::int64_t> const& sizes) {
  auto const tensor = at::empty(sizes, static_cast<at::ScalarType>(type));
  auto* const bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = type == ElementType::boolean ? i % 2 : static_cast<unsigned char>(37 * i + 1);
  }
  return tensor;
}

template <class Tensor>
std::vector<char> bytes_of(Tensor const& tensor) {
  if constexpr (std::is_same_v<Tensor, RawTensor>) {
    auto const* data = reinterpret_cast<char const*>(tensor.elements.data());
    return {data, data + tensor.elements.size_bytes()};
  } else {
    auto const whole = tensor.contiguous();
    auto const* data = static_cast<char const*>(whole.data_ptr());
    return {data, data + whole.nbytes()};
  }
}

/// An answer as an engine writes it.
Message engine_answer(std::vector<at::Tensor> const& tensors, Writer values = {}) {
  Message message{.kind = FrameKind::reply};
  Writer out;
  out.number<std::uint64_t>(values.size_bytes());
  out.raw(values.bytes());
  pack_tensors(out, message.buffers, tensors);
  out.number(std::uint8_t{0});
  message.metadata = out.take();
  return message;
}

std::vector<at::Tensor> samples() {
  std::vector<at::Tensor> tensors;
  for (auto const type : all_types) {
    for (auto const& sizes : std::vector<std::vector<std::int64_t>>{{}, {0}, {3}, {2, 3, 4}}) {
      tensors.push_back(sample(type, sizes));
    }
    tensors.push_back(sample(type, {3, 5}).t());
    tensors.push_back(sample(type, {2, 3, 4}).permute({2, 0, 1}));
  }
  return tensors;
}

TEST_CASE("element types have the numbers and sizes of libtorch") {
  for (auto const type : all_types) {
    CHECK(element_bytes(type) == c10::elementSize(static_cast<at::ScalarType>(type)));
  }
  CHECK(element_bytes(ElementType(12)) == 0);
  CHECK(element_bytes(ElementType(200)) == 0);
}

TEST_CASE("tensors of every type and shape come from an engine as they were") {
  auto const tensors = samples();
  auto const message = engine_answer(tensors);
  auto const values = read_raw_values(message, 0);
  REQUIRE(values.has_value());
  REQUIRE(values->tensors.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CAPTURE(i);
    auto const& raw = values->tensors[i];
    CHECK(static_cast<int>(raw.type) == static_cast<int>(tensors[i].scalar_type()));
    CHECK(raw.sizes == tensors[i].sizes().vec());
    CHECK(raw.is_whole());
    CHECK(bytes_of(raw) == bytes_of(tensors[i]));
  }
}

TEST_CASE("tensors of every type and shape come to an engine as they were") {
  auto const tensors = samples();
  RawValues raw;
  for (auto const& tensor : tensors) {
    auto const whole = tensor.contiguous();
    raw.tensors.push_back(
        {static_cast<ElementType>(whole.scalar_type()), whole.sizes().vec(),
         Buffer(std::make_shared<at::Tensor>(whole), whole.data_ptr(), whole.nbytes())});
  }
  auto const message = make_raw_reply({1}, std::move(raw));
  Reader in(message.metadata);
  in.raw(in.number<std::uint64_t>());
  auto const received = unpack_tensors(in, message.buffers);
  CHECK(in.number<std::uint8_t>() == 0);
  CHECK(in.ok());
  CHECK(in.at_end());
  REQUIRE(received.tensors.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CAPTURE(i);
    CHECK((received.tensors[i].scalar_type() == tensors[i].scalar_type()));
    CHECK(received.tensors[i].sizes() == tensors[i].sizes());
    CHECK(bytes_of(received.tensors[i]) == bytes_of(tensors[i]));
    CHECK_FALSE(received.requires_grad[i]);
  }
}

/// The engine's types for those of a raw worker.
template <class T>
struct engine_type {
  using type = T;
};
template <>
struct engine_type<RawTensor> {
  using type = at::Tensor;
};
template <class T>
struct engine_type<std::vector<T>> {
  using type = std::vector<typename engine_type<T>::type>;
};
template <class... T>
struct engine_type<std::tuple<T...>> {
  using type = std::tuple<typename engine_type<T>::type...>;
};
template <class R, class... P>
constexpr bool same_signature(R (*)(P...)) {
  return RawFunction<R(P...)>::signature ==
         distgrad::detail::function_signature<typename engine_type<R>::type,
                                              std::tuple<typename engine_type<P>::type...>>::value;
}

TEST_CASE("functions have the signatures that engines compute") {
  using Function = void (*)();
  static_assert(same_signature(Function()));
  static_assert(same_signature((RawTensor(*)(RawTensor, double)) nullptr));
  static_assert(same_signature((std::tuple<float, bool>(*)(std::uint8_t, char, long)) nullptr));
  static_assert(same_signature(
      (std::vector<std::string>(*)(std::vector<RawTensor>, std::pair<int, float>)) nullptr));
  static_assert(RawFunction<int(int)>::signature != RawFunction<int(long)>::signature);
}

TEST_CASE("values have the bytes of an engine's codecs, both ways") {
  using Values = std::tuple<bool, std::int16_t, std::uint64_t, float, double, std::string,
                            std::vector<double>, std::vector<bool>, std::pair<int, std::string>>;
  Values const values{true, -5, ~0ull, 0.5f, 1e300, "text", {1, 2, 3}, {true, false}, {7, "x"}};
  RawValues raw;
  RawEncoder out{raw.writer, raw.tensors};
  RawCodec<Values>::encode(out, values);
  Services const services;
  Writer writer;
  std::vector<at::Tensor> tensors;
  Encoder engine{writer, tensors, {}, services};
  Codec<Values>::encode(engine, values);
  CHECK((raw.writer.bytes() == writer.bytes()));
  Reader in(writer.bytes());
  RawDecoder from{in, {}};
  CHECK(RawCodec<Values>::decode(from) == values);
  CHECK(in.at_end());
}

TEST_CASE("what a raw worker cannot have is an error that says so") {
  auto const text = [](Message const& message) {
    auto const values = read_raw_values(message, 0);
    REQUIRE_FALSE(values.has_value());
    CHECK(values.error().code == errc::bad_value);
    return values.error().text;
  };
  CHECK(text(engine_answer({at::Tensor()})).find("undefined") != std::string::npos);
  CHECK(text(engine_answer({at::ones({2, 2}).to_sparse()})).find("sparse") != std::string::npos);
  auto on_device = engine_answer({at::ones({2})});
  on_device.flags = device_flag;
  CHECK(text(on_device).find("device") != std::string::npos);
}

/// Whatever the bytes are, what is read fits together.
void check_survives(Message const& message) {
  auto const values = read_raw_values(message, 0);
  if (!values) {
    CHECK(values.error().code == errc::bad_value);
    return;
  }
  for (auto const& tensor : values->tensors) CHECK(tensor.is_whole());
  Reader in(values->bytes);
  RawDecoder from{in, values->tensors};
  RawCodec<std::tuple<std::vector<std::string>, RawTensor, std::vector<RawTensor>>>::decode(from);
}

TEST_CASE("malformed answers are errors, never a crash") {
  RawValues raw;
  RawEncoder out{raw.writer, raw.tensors};
  auto const tensor = RawTensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  RawCodec<std::tuple<std::vector<std::string>, RawTensor, std::vector<RawTensor>>>::encode(
      out, {{"ab", "c"}, tensor, {tensor}});
  auto const engines =
      engine_answer({sample(ElementType::f32, {2, 3}), sample(ElementType::f64, {3, 2}).t()},
                    std::move(raw.writer));
  for (std::size_t size = 0; size < engines.metadata.size(); ++size) {
    auto cut = engines;
    cut.metadata.resize(size);
    CHECK_FALSE(read_raw_values(cut, 0).has_value());
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    auto hurt = engines;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      hurt.metadata[random() % hurt.metadata.size()] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) hurt.buffers.resize(random() % 3);
    check_survives(hurt);
  }
}

}  // namespace raw_message
}  // namespace

}  // namespace raw_message_tests
