// A safetensors file: every byte of every tensor that it declares is read.
#include "model/files/formats/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tq::fuzz::write("model.safetensors", tq::fuzz::text(data, size));
    return tq::fuzz::run([] {
        tq::ModelFile file(tq::fuzz::directory());
        for (const tq::FileTensor& t : tq::read_safetensors_directory(file, tq::fuzz::directory())) {
            const uint64_t elements = t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3];
            std::vector<float> values(elements);
            tq::decode_row(t.type, values, t.data);
        }
    });
}
