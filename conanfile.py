"""How Conan 2 packages distgrad; packaging/conan/README.md says how to use it."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"


class Distgrad(ConanFile):
    name = "distgrad"
    description = "Distributed autograd for C++: header-only, on libtorch and Boost.Asio"
    license = "BSL-1.0"
    topics = ("autograd", "distributed", "rpc", "libtorch", "header-only")
    package_type = "header-library"
    implements = ["auto_header_only"]
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_tls": [True, False], "with_beast": [True, False], "with_cuda": [True, False]}
    default_options = {
        "with_tls": False,
        "with_beast": False,
        "with_cuda": False,
        "boost/*:header_only": True,
    }
    test_package_folder = "packaging/conan/test_package"
    exports_sources = "include/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "CMakeLists.txt"))
        self.version = re.search(r"^project\(distgrad VERSION ([\d.]+)", text, re.M).group(1)

    def layout(self):
        basic_layout(self)

    def requirements(self):
        self.requires("libtorch/[>=1.13 <3]", transitive_headers=True, transitive_libs=True)
        self.requires("boost/[>=1.81 <2]", transitive_headers=True)
        if self.options.with_tls:
            self.requires("openssl/[>=3 <4]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("distgrad runs on Linux only")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", self.source_folder, self.package_folder)
        copy(self, "*.ipp", self.source_folder, self.package_folder)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "distgrad")
        self.cpp_info.set_property("cmake_target_name", "distgrad::all")
        core = self.add_component("core", "distgrad", ["libtorch::libtorch", "boost::headers"])
        core.includedirs = ["include"]
        core.defines = ["AT_PER_OPERATOR_HEADERS"]
        core.system_libs = ["pthread"]
        if self.options.with_tls:
            self.add_component("tls", "tls", ["core", "openssl::ssl", "openssl::crypto"])
        if self.options.with_beast:
            self.add_component("beast", "beast", ["core"])
        if self.options.with_cuda:
            # There is no package of CUDA; its toolkit is where the machine has it.
            cuda = self.add_component("cuda", "cuda", ["core"])
            toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
            cuda.includedirs = [os.path.join(toolkit, "include")]
            cuda.libdirs = [os.path.join(toolkit, "lib64")]
            cuda.system_libs = ["c10_cuda", "cudart"]

    def add_component(self, name, target, requires):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"distgrad::{target}")
        component.set_property("pkg_config_name", name.replace("core", "distgrad"))
        component.requires = requires
        component.includedirs = []
        component.bindirs = []
        component.libdirs = []
        return component
