// Writes a compiled kernel as C++ at build time: NAME.gen.h with its interface, read from the SPIR-V by runtime/reflect.h, and
// NAME.words.h with its words. If every file that names a kernel read the SPIR-V, compilers would take minutes.
#include "runtime/reflect.h"
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

using tq::Interface;

std::vector<uint32_t> read_words(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<uint32_t> words(bytes.size() / 4);
    for (size_t i = 0; i < words.size(); i++)
        for (size_t b = 0; b < 4; b++) words[i] |= uint32_t(uint8_t(bytes[4 * i + b])) << (8 * b); // glslang writes little-endian
    return words;
}

std::string list(const std::array<uint32_t, 3>& a) {
    return "{" + std::to_string(a[0]) + "u, " + std::to_string(a[1]) + "u, " + std::to_string(a[2]) + "u}";
}

std::string literal(const Interface& io) {
    // A new field does not compile without a place here.
    const auto& [bindings, texels, reads, writes, push_bytes, constants, workgroup, workgroup_constant, gaps, subgroups,
                 cooperative, foreign] = io;
    std::ostringstream out;
    out << std::boolalpha << "{.bindings = " << bindings << ", .texels = " << texels << "u, .reads = " << reads
        << "u, .writes = " << writes << "u, .push_bytes = " << push_bytes << ", .constants = " << constants
        << ",\n     .workgroup = " << list(workgroup) << ", .workgroup_constant = " << list(workgroup_constant)
        << ",\n     .gaps = " << gaps << ", .subgroups = " << subgroups << ", .cooperative = " << cooperative
        << ", .foreign = " << foreign << "}";
    return out.str();
}

// Returns the struct of a kernel's specialisation constants. All kernels of one source have the same.
std::string constants_struct(const std::string& name, const std::vector<std::string>& constants) {
    std::string names, fields;
    for (const std::string& constant : constants) {
        names += (names.empty() ? "" : " ") + constant;
        fields += "    Constant " + constant + ";\n";
    }
    const std::string guard = "TQ_GENERATED_" + name;
    return "#ifndef " + guard + "\n#define " + guard + "\nstruct " + name + " {\n" + fields +
           "    static constexpr std::string_view names = \"" + names + "\";\n};\n#endif\nstatic_assert(" + name +
           "::names == \"" + names + "\", \"all kernels of one source have the same specialisation constants\");\n";
}

bool write(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    return bool(file.flush());
}

// Leaves an unchanged file alone, so that sources that include an interface are compiled again only if it has changed.
bool write_if_changed(const std::string& path, const std::string& text) {
    std::ifstream file(path, std::ios::binary);
    return (file && std::string(std::istreambuf_iterator<char>(file), {}) == text) || write(path, text);
}

} // namespace

int main(int count, char** arguments) {
    if (count != 7) {
        std::fprintf(stderr, "usage: %s NAME STEM NAMESPACE DIRECTORY PARAMS OUTPUT, which reads OUTPUT.spv\n", arguments[0]);
        return 2;
    }
    const std::string name = arguments[1], constants = std::string(arguments[2]) + "_constants", space = arguments[3],
                      directory = arguments[4], params = arguments[5], output = arguments[6];
    const std::vector<uint32_t> words = read_words(output + ".spv");
    if (words.size() < tq::spirv::header_words || words[0] != 0x07230203) {
        std::fprintf(stderr, "%s.spv is not SPIR-V\n", output.c_str());
        return 1;
    }
    const Interface io = tq::reflect(words);
    const std::string header = "// Generated: the kernel " + name + " of " + directory + ".\n#pragma once\n#include \"" +
                               directory + "/params.h\"\n#include \"runtime/shader.h\"\nnamespace tq::" + space +
                               " {\nextern const std::span<const uint32_t> " + name + "_words;\n" +
                               constants_struct(constants, tq::constant_names(words, io)) + "inline constexpr Shader<" + params +
                               ", " + constants + "> " + name + "{{\"" + name + "\", &" + name + "_words,\n    " + literal(io) +
                               "}};\nstatic_assert(well_formed<" + name + ">);\n} // namespace tq::" + space + "\n";
    std::ostringstream body;
    body << "const uint32_t " << name << "_code[] = {";
    for (size_t i = 0; i < words.size(); i++) body << (i % 12 == 0 ? "\n" : "") << words[i] << "u,";
    body << "};\nconstinit const std::span<const uint32_t> " << name << "_words = " << name << "_code;\n";
    return write_if_changed(output + ".gen.h", header) && write(output + ".words.h", body.str()) ? 0 : 1;
}
