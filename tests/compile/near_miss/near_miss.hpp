#pragma once
// A near miss does not model its policy, and the compiler says in one line what it lacks:
// check.cmake compares the errors of the whole file with the texts given here, in their order.

#define HIT(Role, Type)                        \
  static_assert(distgrad::Role##Policy<Type>); \
  static_assert(sizeof(distgrad::Role##Check<Type>) > 0)

#define NEAR_MISS(Role, Type, text)             \
  static_assert(!distgrad::Role##Policy<Type>); \
  static_assert(sizeof(distgrad::Role##Check<Type>) > 0)
