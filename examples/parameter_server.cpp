// How do several trainers share one big embedding table that lives on a server?
#include <distgrad/distgrad.hpp>

#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t rows = 10'000, columns = 16;

/// Sums table rows: indices [n], offsets [bags] -> [bags, columns]. Its gradient is sparse: only
/// the rows that were looked up.
at::Tensor lookup(at::Tensor const& table, at::Tensor const& indices, at::Tensor const& offsets) {
  return std::get<0>(at::embedding_bag(table, indices, offsets, /*scale_grad_by_freq=*/false,
                                       /*mode=*/0, /*sparse=*/true));
}

struct EmbeddingBag {  // what the server owns
  at::Tensor table = at::ones({rows, columns}).mul(0.01).set_requires_grad(true);
  at::Tensor forward(at::Tensor const& indices, at::Tensor const& offsets) const {
    return lookup(table, indices, offsets);
  }
};

EmbeddingBag make_bag() { return {}; }

/// The server's gradient in one trainer's context; sparse, and sent as such.
at::Tensor gradient_of(distgrad::RRef<EmbeddingBag> const& bag, distgrad::ContextId context) {
  auto const part = distgrad::this_worker().context_part(context);
  return part->gradient(bag.local_value().table);
}

/// One step of the trainer that runs this, in a context of its own. @return whether the gradients
/// are right.
bool step(distgrad::RRef<EmbeddingBag> const& bag) {
  auto& trainer = distgrad::this_worker();
  std::int64_t const rank = trainer.rank();
  auto const indices = at::tensor({rank, rank, 100 * rank});
  auto const offsets = at::tensor({0, 2}, at::kLong);
  auto const dense = at::ones({columns, 1}).mul(rank).set_requires_grad(true);

  auto context = trainer.context();
  auto const pooled = bag.rpc_sync<&EmbeddingBag::forward>(indices, offsets);
  context.backward({pooled.mm(dense).sum()});
  auto const server = trainer.rpc_sync<gradient_of>("worker0", bag, context.id());

  // The same in this process, on one graph.
  auto const table = at::ones({rows, columns}).mul(0.01).set_requires_grad(true);
  auto const weight = dense.detach().clone().set_requires_grad(true);
  lookup(table, indices, offsets).mm(weight).sum().backward();
  return server.is_sparse() && server.to_dense().equal(table.grad().to_dense()) &&
         context.gradient(dense).equal(weight.grad());
}

bool train(distgrad::RRef<EmbeddingBag> const& bag, int steps) {
  bool right = true;
  for (int i = 0; i < steps; ++i) right = step(bag) && right;
  return right;
}

}  // namespace

int main() {
  distgrad::LocalCluster<4> cluster;  // worker0 is the server, the others train
  auto& server = cluster[0];
  auto const bag = server.remote<make_bag>("worker0");

  std::vector<distgrad::Future<bool>> trainers;  // all at the same time
  for (int rank = 1; rank < 4; ++rank) trainers.push_back(server.rpc_async<train>(rank, bag, 50));
  bool all = true;
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    bool const right = trainers[i].get();
    std::printf("worker%zu: 50 steps, gradients on the server and here are %s\n", i + 1,
                right ? "right" : "WRONG");
    all = all && right;
  }
  cluster.shutdown();
  return all ? 0 : 1;
}

// Output:
// worker1: 50 steps, gradients on the server and here are right
// worker2: 50 steps, gradients on the server and here are right
// worker3: 50 steps, gradients on the server and here are right
