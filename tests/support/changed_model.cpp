#include "tests/support/changed_model.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include <fstream>

namespace tq::test {

void write_changed(const std::filesystem::path& to, const std::filesystem::path& from,
                   const std::map<std::string, ModelFile::Value>& keys) {
    const ModelFile file = read_gguf(from);
    GgufWriter writer;
    for (const auto& [key, value] : file.metadata())
        if (!keys.contains(key)) writer.set(key, value);
    for (const auto& [key, value] : keys) writer.set(key, value);
    for (const FileTensor& t : file.tensors())
        writer.add_tensor(t.name, t.type, t.ne[1] == 1 ? std::vector{t.ne[0]} : std::vector{t.ne[0], t.ne[1]});
    std::ofstream out(to, std::ios::binary);
    writer.write(out, [&](size_t i, std::ostream& bytes) {
        const auto data = file.tensors()[i].data;
        bytes.write(reinterpret_cast<const char*>(data.data()), std::streamsize(data.size()));
    });
}

} // namespace tq::test
