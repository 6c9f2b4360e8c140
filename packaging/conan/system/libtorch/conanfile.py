"""The system's libtorch (Debian: libtorch-dev) under the name that distgrad requires."""

import os
import re

from conan import ConanFile
from conan.tools.files import load

API = "/usr/include/torch/csrc/api/include"


class SystemLibtorch(ConanFile):
    name = "libtorch"
    package_type = "shared-library"
    settings = "os", "arch"

    def set_version(self):
        text = load(self, os.path.join(API, "torch/version.h"))
        part = lambda name: re.search(rf"#define TORCH_VERSION_{name} (\d+)", text).group(1)
        self.version = ".".join(part(name) for name in ("MAJOR", "MINOR", "PATCH"))

    def package_info(self):
        self.cpp_info.includedirs = [API]  # the compiler looks into /usr/include by itself
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        # Kernels register themselves when the library is loaded, used by name or not.
        self.cpp_info.exelinkflags = self.cpp_info.sharedlinkflags = ["-Wl,--no-as-needed"]
        self.cpp_info.system_libs = ["torch_cpu", "c10"]
        if os.path.exists("/usr/include/glog/logging.h"):
            self.cpp_info.system_libs.append("glog")  # Debian's headers log through it
