// Finds out what a path is: a directory or a file of Hugging Face's, PyTorch's, or GGUF. GGUF comes last, so that its error, "it
// begins with ...", is for files of unknown formats. PyTorch files are recognised to be refused: pickles run code when they are
// read.
#include "model/files/formats/open.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/huggingface.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <fstream>

namespace tq {
namespace {

namespace fs = std::filesystem;

// Returns the name of a file with this extension in a directory, the first by name; empty when there is none.
std::string file_with_extension(const fs::path& directory, std::string_view extension) {
    std::string first;
    std::error_code error;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = utf8_text(entry->path().filename());
        if (name.ends_with(extension) && (first.empty() || name < first)) first = name;
    }
    return first;
}

ModelFile open_directory(const fs::path& directory) {
    if (is_there(directory / "config.json")) return read_huggingface(directory);
    if (const std::string gguf = file_with_extension(directory, ".gguf"); !gguf.empty()) {
        fail("{} is a directory without config.json; to run the GGUF file in it, name the file itself: {}", utf8_text(directory),
             printable(utf8_text(directory / utf8_path(gguf)), 200));
    }
    fail("{} is a directory without config.json: a model from Hugging Face has config.json, tokenizer.json and safetensors files "
         "in one directory",
         utf8_text(directory));
}

// PyTorch writes ZIP archives, or Python pickles in its older format.
bool is_pytorch(const fs::path& path) {
    std::error_code unknown;
    if (!fs::is_regular_file(path, unknown)) return false; // a pipe would wait for a writer
    std::string begin(4, '\0');
    std::ifstream(path, std::ios::binary).read(begin.data(), 4);
    const std::string extension = utf8_text(path.extension());
    const bool named_so = extension == ".bin" || extension == ".pt" || extension == ".pth";
    return begin.starts_with("PK\x03\x04") || (named_so && begin.starts_with('\x80'));
}

} // namespace

ModelFile open_model_file(const fs::path& path) {
    std::error_code unknown;
    if (fs::is_directory(path, unknown)) return open_directory(path);
    const std::string name = utf8_text(path.filename());
    if (name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
        if (!is_there(path)) fail("{} does not exist", utf8_text(path));
        return open_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
    }
    if (is_pytorch(path)) {
        fail("{}: PyTorch files are not supported, as they can run code when they are read: use a release in safetensors or GGUF",
             utf8_text(path));
    }
    return read_gguf(path);
}

} // namespace tq
