#include <distgrad/core/ids.hpp>

int main() {
  distgrad::IdSource source(distgrad::WorkerId{1}, distgrad::Incarnation{2});
  return source.next<distgrad::RRefId>().sequence == 1 ? 0 : 1;
}
