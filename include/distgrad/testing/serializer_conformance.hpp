#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/ops/imag.h>

#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/testing/tensor_samples.hpp>

// What every serializer must do. A plugin's test file:
//
//     struct MyRig {
//       using Serializer = MySerializer;
//       static Serializer make();
//       // Only for a serializer that documents a loss: the largest relative error of elements of a
//       // real floating-point type; 0, the default, means every bit.
//       static double tolerance(at::ScalarType);
//     };
//     using namespace distgrad::testing;
//     TEST_CASE_TEMPLATE_INVOKE(serializer_conformance, MyRig);

namespace distgrad::testing {

/// A message on its way: the table of tensors and their payloads.
struct Packed {
  std::vector<std::byte> metadata;
  std::vector<Buffer> buffers;
};

template <SerializerPolicy Serializer>
Packed pack(Serializer const& serializer, std::vector<at::Tensor> const& tensors) {
  Writer out;
  Packed packed;
  serializer.pack(out, packed.buffers, tensors);
  packed.metadata = out.take();
  return packed;
}

/// Copies the payloads where the receiver wants them, as a transport does.
template <SerializerPolicy Serializer>
Packed deliver(Serializer const& serializer, Packed const& sent) {
  std::vector<std::uint64_t> lengths;
  for (auto const& buffer : sent.buffers) lengths.push_back(buffer.size_bytes());
  Packed received{sent.metadata, serializer.landing(lengths)};
  REQUIRE(received.buffers.size() == lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    auto const from = sent.buffers[i].bytes();
    REQUIRE(received.buffers[i].size_bytes() >= from.size());
    std::copy(from.begin(), from.end(), received.buffers[i].data());
  }
  return received;
}

template <SerializerPolicy Serializer>
ReceivedTensors unpack(Serializer const& serializer, Packed const& packed) {
  Reader in(packed.metadata);
  auto received = serializer.unpack(in, packed.buffers);
  CHECK(in.ok());
  CHECK(in.at_end());
  return received;
}

template <SerializerPolicy Serializer>
ReceivedTensors round_trip(Serializer const& serializer, std::vector<at::Tensor> const& tensors) {
  return unpack(serializer, deliver(serializer, pack(serializer, tensors)));
}

/// Unpacks what a hostile peer sent and looks at every element.
/// @return whether it was refused, with a `distgrad::Error` as it must be.
template <SerializerPolicy Serializer>
bool refuses(Serializer const& serializer, Packed const& packed) {
  try {
    Reader in(packed.metadata);
    auto const received = serializer.unpack(in, packed.buffers);
    for (auto const& tensor : received.tensors) equal_bits(tensor, tensor);
    return false;
  } catch (Error const& e) {
    CHECK(e.code() == condition::bad_message);
    return true;
  }
}

/// Whether `tensor` is what was sent: the same type, sizes and layout, and the same elements as far
/// as the rig promises.
template <class Rig>
bool has_arrived(at::Tensor const& tensor, at::Tensor const& sent) {
  double tolerance = 0;
  if constexpr (requires { Rig::tolerance(at::kFloat); }) {
    if (sent.defined()) tolerance = Rig::tolerance(sent.scalar_type());
  }
  return equal_within(tensor, sent, tolerance);
}

TEST_CASE_TEMPLATE_DEFINE("serializer policy", Rig, serializer_conformance) {
  using Serializer = typename Rig::Serializer;
  static_assert(SerializerPolicy<Serializer>);
  Serializer const serializer = Rig::make();

  SUBCASE(
      "every element type and layout arrives, bit by bit if not promised less, with its strides") {
    for (auto const dtype : all_dtypes()) {
      for (auto const& layout : all_layouts()) {
        CAPTURE(c10::toString(dtype));
        CAPTURE(layout.name);
        auto const sent = layout.make(dtype);
        auto const received = round_trip(serializer, {sent});
        REQUIRE(received.tensors.size() == 1);
        auto const& tensor = received.tensors[0];
        CHECK(has_arrived<Rig>(tensor, sent));
        CHECK(tensor.strides() == sent.strides());
        CHECK(tensor.device() == sent.device());
        CHECK(!received.requires_grad[0]);
      }
    }
  }

  SUBCASE("views with gaps or overlaps arrive compact") {
    for (auto const dtype : copyable_dtypes()) {
      for (auto const& layout : gapped_layouts()) {
        CAPTURE(c10::toString(dtype));
        CAPTURE(layout.name);
        auto const sent = layout.make(dtype);
        auto const tensor = round_trip(serializer, {sent}).tensors.at(0);
        CHECK(has_arrived<Rig>(tensor, sent));
        CHECK(has_dense_strides(tensor.sizes(), tensor.strides()));
      }
    }
  }

  SUBCASE("lazy conjugates and negatives arrive as their values") {
    auto const number = dense(at::kComplexFloat, {2, 3}).fill_(c10::complex<float>(1, 2));
    for (auto const& sent : {number.conj(), at::imag(number.conj()), number.conj().t()}) {
      REQUIRE((sent.is_conj() || sent.is_neg()));
      auto const tensor = round_trip(serializer, {sent}).tensors.at(0);
      CHECK(!tensor.is_conj());
      CHECK(!tensor.is_neg());
      CHECK(tensor.equal(sent));
    }
  }

  SUBCASE("sparse COO tensors keep indices, values and whether they are coalesced") {
    for (auto const dtype : copyable_dtypes()) {
      for (bool const coalesced : {true, false}) {
        for (std::int64_t const nnz : {0, 1, 4}) {
          CAPTURE(c10::toString(dtype));
          CAPTURE(nnz);
          for (auto const& sent :
               {sparse(dtype, nnz, coalesced), sparse(dtype, nnz, coalesced, {3, 2}),
                sparse(dtype, nnz, coalesced, {0})}) {
            auto const tensor = round_trip(serializer, {sent}).tensors.at(0);
            CHECK(has_arrived<Rig>(tensor, sent));
            CHECK(tensor.sparse_dim() == sent.sparse_dim());
          }
        }
      }
    }
  }

  SUBCASE("undefined tensors and empty lists arrive as such, in order") {
    CHECK(round_trip(serializer, {}).tensors.empty());
    auto const a = dense(at::ScalarType::Int, {2}), b = dense(at::ScalarType::Half, {0});
    auto const c = sparse(at::ScalarType::Float, 3, true);
    std::vector<at::Tensor> const sent{{}, a, {}, b, c, a, {}};
    auto const received = round_trip(serializer, sent);
    REQUIRE(received.tensors.size() == sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i)
      CHECK(has_arrived<Rig>(received.tensors[i], sent[i]));
  }

  SUBCASE("whether gradients are required travels, the graph does not") {
    auto const leaf = dense(at::ScalarType::Float, {2}).requires_grad_();
    auto const inner = leaf.mul(2), plain = leaf.detach();
    auto const integer = dense(at::ScalarType::Long, {2});
    auto const sparse_leaf = sparse(at::ScalarType::Float, 3, true).requires_grad_();
    auto const received = round_trip(serializer, {leaf, inner, plain, integer, sparse_leaf});
    CHECK(received.requires_grad == std::vector<bool>{true, true, false, false, true});
    for (auto const& tensor : received.tensors) {
      CHECK(!tensor.requires_grad());
      CHECK(!tensor.grad_fn());
    }
  }

  SUBCASE("what arrives is an ordinary tensor: it can be written, and differentiated") {
    auto tensor =
        round_trip(serializer, {dense(at::ScalarType::Int, {3}).to(at::kFloat)}).tensors.at(0);
    tensor.fill_(3).requires_grad_();
    tensor.mul(tensor).sum().backward();
    CHECK(tensor.grad().equal(tensor.detach().mul(2)));
  }

  SUBCASE("a packed message holds its tensors, and received tensors hold their memory") {
    auto packed = pack(serializer, {dense(at::kInt, {1000}), sparse(at::kFloat, 4, true)});
    auto received = unpack(serializer, deliver(serializer, packed));
    packed = {};
    CHECK(equal_bits(received.tensors[0], dense(at::ScalarType::Int, {1000})));
    CHECK(has_arrived<Rig>(received.tensors[1], sparse(at::kFloat, 4, true)));
  }

  SUBCASE("what cannot be sent is refused with its place, its kind and advice") {
    auto const good = dense(at::ScalarType::Float, {2});
    auto const meta_device = good.to(c10::Device(c10::DeviceType::Meta));
    auto const csr = dense(at::ScalarType::Float, {2, 2}).to_sparse_csr();
    for (auto const& [bad, word] : {std::pair{meta_device, "meta"}, std::pair{csr, "SparseCsr"}}) {
      Writer out;
      std::vector<Buffer> buffers;
      std::vector<at::Tensor> const tensors{good, bad};
      try {
        serializer.pack(out, buffers, tensors);
        FAIL("packed");
      } catch (Error const& e) {
        CHECK(e.code() == errc::unsupported_tensor);
        CHECK(e.text().find(word) != std::string::npos);
        CHECK(e.text().find("tensor 2 of 2") != std::string::npos);
      }
      CHECK(buffers.empty());
    }
  }

  SUBCASE("a message that is cut off anywhere is refused") {
    auto const whole = deliver(
        serializer, pack(serializer, {dense(at::kFloat, {3, 4}).t(), sparse(at::kFloat, 3, true)}));
    for (std::size_t size = 0; size < whole.metadata.size(); ++size) {
      auto cut = whole;
      cut.metadata.resize(size);
      CHECK(refuses(serializer, cut));
    }
    for (std::size_t i = 0; i < whole.buffers.size(); ++i) {
      auto missing = whole, shorter = whole, more = whole;
      missing.buffers.erase(missing.buffers.begin() + i);
      CHECK(refuses(serializer, missing));
      auto const& buffer = whole.buffers[i];
      shorter.buffers[i] = Buffer(buffer.owner(), buffer.data(), buffer.size_bytes() - 1);
      CHECK(refuses(serializer, shorter));
      more.buffers.push_back(buffer);
      CHECK(refuses(serializer, more));
    }
  }

  SUBCASE("no change of a message makes it crash") {
    std::vector<at::Tensor> const tensors{dense(at::kFloat, {3, 4}).t(),
                                          {},
                                          sparse(at::kDouble, 4, false, {2}),
                                          dense(at::kLong, {}),
                                          dense(at::kBool, {0, 3})};
    auto const whole = deliver(serializer, pack(serializer, tensors));
    std::mt19937 random(1);
    int refused = 0;
    constexpr int rounds = 20000;
    for (int round = 0; round < rounds; ++round) {
      auto changed = whole;
      auto const changes = 1 + random() % 3;
      for (unsigned c = 0; c < changes; ++c) {
        auto& byte = changed.metadata[random() % changed.metadata.size()];
        switch (random() % 4) {
          case 0: byte = std::byte(random()); break;
          case 1: byte ^= std::byte(1u << random() % 8); break;
          case 2: byte = std::byte{0xff}; break;
          case 3: byte = std::byte{0x7f}; break;
        }
      }
      refused += refuses(serializer, changed);
    }
    CHECK(refused > rounds / 2);
  }

  SUBCASE("landing gives a buffer for each length") {
    std::vector<std::uint64_t> const lengths{0, 1, 4096, 7};
    auto const buffers = serializer.landing(lengths);
    REQUIRE(buffers.size() == lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) CHECK(buffers[i].size_bytes() >= lengths[i]);
    CHECK(serializer.landing({}).empty());
  }
}

}  // namespace distgrad::testing
