// The folder of a row that --dump has written: what was run, on what, and what was expected of it.
#pragma once
#include "runtime/reflect.h"
#include "runtime/shader.h"
#include "tools/check/conformance/row.h"
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tq::conformance {

using Words = std::vector<uint32_t>;

struct Recording {
    struct Binding {
        std::string buffer;
        uint64_t offset, bytes;
    };
    struct Step {
        std::string kernel;
        std::array<uint32_t, 3> groups;
        Words constants, push; // constants: by their ids
        uint32_t subgroup_size;
        std::vector<Binding> bindings;
    };
    struct Comparison {
        std::string buffer; // whose first words are the result; empty: not known
        size_t after;       // how many steps run before it: never fewer than before the comparison that precedes it
        bool floats;
        double allowed; // of floats: the greatest norm of the difference
        Words expected, result;
        std::vector<WordRange> halves = {}; // as compare_words() has them
    };
    std::string row;
    std::vector<Step> steps;
    std::map<std::string, Words> modules, buffers; // by kernel; by name, before the first step
    std::vector<Comparison> comparisons;
};

// Throws an Error that names the file if the folder is not complete, or something does not fit: the sizes of constants, push
// constants and buffers, and the modules' interfaces.
Recording read_recording(const std::filesystem::path& folder);

// Reads a SPIR-V module. Throws Error.
Words read_module(const std::filesystem::path& file);

// Throws Error if the steps do not fit the interface of the module that runs them.
void check_interface(const Recording& recording, const std::string& kernel);

} // namespace tq::conformance
