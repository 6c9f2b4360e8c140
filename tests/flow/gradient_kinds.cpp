// Tensors of every kind through a call: layout, type, strides and bits of all gradients are those
// of the uncut graph.
#include "kinds.hpp"

namespace gradient_kinds_tests {

using namespace rig::kinds;
using rig::Mode;
using rig::Workers;

namespace {

std::vector<Kind> const& kinds() {
  static auto const all = [] {
    std::vector<Kind> kinds;
    for (auto const& group : {numbers(), shapes(), outputs(), sparse()}) {
      kinds.insert(kinds.end(), group.begin(), group.end());
    }
    return kinds;
  }();
  return all;
}

Tensors kinds_apply(int index, Tensors const& in) { return kinds()[std::size_t(index)].there(in); }

at::Tensor bits(at::Tensor const& tensor) {
  auto const plain = tensor.resolve_conj().resolve_neg();
  auto const real = plain.is_complex() ? at::view_as_real(plain) : plain;
  return real.contiguous().view(-1).view(at::kByte);
}

void check_same(at::Tensor const& got, at::Tensor const& wanted) {
  REQUIRE(got.defined() == wanted.defined());
  if (!got.defined()) return;
  CHECK((got.scalar_type() == wanted.scalar_type()));
  REQUIRE((got.layout() == wanted.layout()));
  CHECK(got.sizes() == wanted.sizes());
  if (got.is_sparse()) {
    auto const ours = got.coalesce(), theirs = wanted.coalesce();
    CHECK(ours.indices().equal(theirs.indices()));
    CHECK(bits(ours.values()).equal(bits(theirs.values())));
  } else {
    if (got.numel() > 0) CHECK(got.strides() == wanted.strides());
    CHECK(bits(got).equal(bits(wanted)));
  }
}

// Fresh leaves each time: an operation in place must not show in the other run.
void check_kind(Workers const& w, int index, Mode mode) {
  auto const& kind = kinds()[std::size_t(index)];
  auto const local = kind.leaves();
  torch::autograd::backward(kind.after(kind.there(kind.before(local))), {});

  auto const leaves = kind.leaves();
  auto ctx = w[0].context();
  auto const sent = kind.before(leaves);
  Tensors copies;
  for (auto const& tensor : sent) copies.push_back(tensor.detach().clone());
  auto const answer = rig::run<kinds_apply>(w[0], mode, "worker1", index, sent);
  for (std::size_t i = 0; i < sent.size(); ++i) {  // what the callee does in place stays there
    CHECK(rig::same(sent[i], copies[i]));
  }
  ctx.backward(kind.after(answer));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    CAPTURE(i);
    check_same(ctx.gradient(leaves[i]), local[i].grad());
  }
}

void check_kinds(Workers const& w) {
  for (int i = 0; i < int(kinds().size()); ++i) {
    CAPTURE(kinds()[std::size_t(i)].name);
    check_kind(w, i, Mode::call);
    check_kind(w, i, Mode::remote);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("tensors of every kind get the gradients of the uncut graph through a call",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(check_kinds);
}

}  // namespace gradient_kinds_tests
