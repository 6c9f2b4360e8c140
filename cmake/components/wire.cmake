# distgrad::wire is there in every copy: raw workers, and the rooms below them. It needs no libtorch,
# which is not looked for where `wire` is the only component that is asked for.
