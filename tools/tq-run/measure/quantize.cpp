// tq-run quantize: writes a model as a GGUF file in other weight formats, and says what that costs. Order: plan of all tensors
// (plan_conversion), tensors one by one into OUT.part, read back of the whole file as a model, comparison with what was written
// and with the original (the rms errors), and only then the name. A stopped run goes on at its tensor (PartFile): what decides
// the bytes, the header and the inputs' identities, is in the log's first line.
// OUT must be no file that is read, also under another name: the model is mapped, and writing over it would change it while it is
// converted (refuse_inputs).
#include "base/checksum.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/quantise.h"
#include "model/files/imatrix.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/part_file.h"
#include "tools/tq-run/measure/model_divergence.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct QuantizeArguments {
    ConsoleArguments console;
    std::string in, out, type, output_type, embedding_type, imatrix;
    uint32_t threads = 0, nthreads = 0; // 0: all cores
    bool allow_requantize = false, pure = false, overwrite = false, dry_run = false;
    DivergenceArguments divergence;
};

std::optional<GgmlType> named_type(const std::string& name) {
    for (const GgmlType type : weight_formats)
        if (lowercase(type_name(type)) == lowercase(name)) return type;
    return std::nullopt; // none was given: the flags accept no other names
}

// The formats that have an encoder, in lower case.
std::string encoded_types() {
    std::string names;
    for (const GgmlType type : weight_formats)
        if (has_encoder(type)) names += (names.empty() ? "" : " ") + lowercase(type_name(type));
    return names;
}

// Loads a model, with its head for multi-token prediction if a Hugging Face directory has one.
Model load(const fs::path& path) {
    Model model = load_model(path);
    const uint32_t heads = model.file.rope_is_split() ? model.config.nextn_predict_layers : 0;
    if (heads > 1)
        model.notes.push_back(fmt::format("{} has {} heads for multi-token prediction, which are left out: tq-run runs one",
                                          printable(model.name), heads));
    return heads == 1 ? load_model(path, {.mtp = MtpHead::requested}) : std::move(model);
}

json identity(const std::vector<FileIdentity>& files) {
    json out = json::array();
    for (const FileIdentity& f : files) out.push_back({f.device, f.number, f.bytes, f.modified_ns});
    return out;
}

std::string hexadecimal(uint64_t sum) { return fmt::format("{:016x}", sum); }

// The new file, from its plan to its name.
class QuantizedFile {
  public:
    QuantizedFile(const QuantizeArguments& arguments, const Model& model, Conversion conversion)
        : arguments_(arguments), model_(model), conversion_(std::move(conversion)), header_(conversion_.writer.header()),
          pool_(arguments.threads) {
        if (arguments.imatrix.empty()) return;
        importances_ = read_imatrix(utf8_path(arguments.imatrix), conversion_);
        write_error(fmt::format("tq-run: {}\n", describe_importances(importances_, conversion_)));
    }

    uint64_t bytes() const { return header_.size() + conversion_.writer.data_bytes(); }

    std::string heading() const {
        uint64_t before = 0, weights = 0;
        for (const ConvertedTensor& t : tensors()) {
            before += t.from.bytes();
            weights += uint64_t(t.from.rows) * t.from.cols;
        }
        return fmt::format("{}: {} tensors, {} of weights, to a file of {}, {:.2f} bits per weight\n", model_.name,
                           tensors().size(), size_text(before), size_text(bytes()), 8 * double(bytes()) / double(weights));
    }

    // False on Ctrl-C.
    bool write(Console& console) {
        PartFile file(utf8_path(arguments_.out), header_, bytes(), description(), arguments_.overwrite,
                      [&](size_t i, const json& part, std::span<const std::byte> all) { return is_right(i, part, all); });
        write_text(heading());
        if (file.finished() > 0)
            write_error(fmt::format("tq-run: going on after {} of {} tensors\n", file.finished(), tensors().size()));
        const bool converted = convert(file, console);
        finished_ = file.finished();
        if (!converted || !read_back(loaded(file), console)) return false;
        file.commit();
        return true;
    }

    std::string where_stopped() const {
        if (finished_ == 0) return "stopped before the first tensor was finished, and nothing is kept";
        return fmt::format("stopped after {} of {} tensors; the same command goes on from there", finished_, tensors().size());
    }

    // A line for each format: its tensors, their size, and the root mean square of their errors / that of the originals.
    std::string report() const {
        std::vector<std::vector<std::string>> rows{{"format", "tensors", "size", "rms error, %"}};
        for (const auto& [type, all] : errors_)
            rows.push_back({type_name(type), std::to_string(all.tensors), size_text(all.bytes),
                            fmt::format("{:.3f}", 100 * all.error.relative())});
        return markdown(rows, 1);
    }

  private:
    const std::vector<ConvertedTensor>& tensors() const { return conversion_.tensors; }
    uint64_t offset(size_t i) const { return header_.size() + conversion_.writer.tensor_offset(i); }

    // All that decides the bytes.
    // The header has the plan: names, formats, shapes and metadata. The inputs' identities (device, file number, size, time)
    // stand for their contents, which would take as long to hash as to convert.
    json description() const {
        json what{{"schema", "tq-run-quantize"},
                  {"version", 1},
                  {"header", hexadecimal(checksum(std::as_bytes(std::span(header_))))},
                  {"in", identity(model_.file.identities())}};
        if (!arguments_.imatrix.empty()) what["imatrix"] = identity({MappedFile(utf8_path(arguments_.imatrix)).identity()});
        return what;
    }

    json part(size_t i, uint64_t sum) const { return {{"tensor", tensors()[i].from.name}, {"sum", hexadecimal(sum)}}; }

    // A part of an earlier run: its line, with the tensor's name and a checksum, must be the one that its bytes give now.
    bool is_right(size_t i, const json& written, std::span<const std::byte> all) const {
        if (i >= tensors().size() || offset(i) + tensors()[i].bytes() > all.size()) return false;
        return written == part(i, conversion_checksum(tensors()[i], all.subspan(offset(i), tensors()[i].bytes())));
    }

    // A tensor is written in pieces, from first to last, and its line comes after its last byte. A weight that is not finite
    // discards all that was written, because going on would end at the same tensor.
    bool convert(PartFile& file, Console& console) {
        TransferStatus status(console);
        const uint64_t before = file.finished() < tensors().size() ? offset(file.finished()) : bytes();
        for (size_t i = file.finished(); i < tensors().size(); ++i) {
            uint64_t at = offset(i);
            const auto write = [&](std::span<const std::byte> piece) {
                file.write(at, piece);
                at += piece.size();
            };
            const auto on_progress = [&](uint64_t) {
                status.update(fmt::format("quantising {}", model_.name), at, bytes(), at - before);
                return !interrupted();
            };
            std::optional<uint64_t> sum;
            try {
                sum = convert_tensor(pool_, tensors()[i], importances_, write, on_progress);
            } catch (const WrongWeight&) {
                file.discard();
                throw;
            }
            if (!sum) return false;
            sums_[i] = *sum;
            file.finish(part(i, *sum));
        }
        return true;
    }

    // Loads the whole file as a model. One that does not load discards all that was written, as the same command would again.
    ModelFile loaded(PartFile& file) const {
        const fs::path& path = file.close();
        try {
            return load_model(path, {.mtp = model_.weights.mtp ? MtpHead::requested : MtpHead::left_out}).file;
        } catch (const Error& e) {
            file.discard();
            fail("the new file would not load, and is not kept: {}", e.what());
        }
    }

    // Compares every tensor with what was written and with the original. False on Ctrl-C.
    bool read_back(const ModelFile& file, Console& console) {
        TransferStatus status(console);
        for (size_t i = 0; i < tensors().size(); ++i) {
            if (interrupted()) return false;
            const ConvertedTensor& t = tensors()[i];
            const FileTensor* read = file.find_tensor(t.from.name);
            const auto sum = sums_.find(i);
            if (read == nullptr || read->type != t.type || read->data.size() != t.bytes() ||
                (sum != sums_.end() && conversion_checksum(t, read->data) != sum->second))
                fail("{}: tensor '{}' is not what was written: the disk may be damaged; run the command again",
                     printable(utf8_text(file.path()), 300), printable(t.from.name));
            const ConversionError error = conversion_error(pool_, t, read->data);
            check_mapped_files();
            Errors& all = errors_[t.type];
            all.add(error, t.bytes());
            status.update("reading it back", offset(i) + t.bytes(), bytes(), offset(i) + t.bytes());
            if (arguments_.console.verbose)
                write_error(fmt::format("{}: {} to {}, rms error {:.3f} %\n", printable(t.from.name), type_name(t.from.type),
                                        type_name(t.type), 100 * error.relative()));
        }
        return true;
    }

    struct Errors {
        size_t tensors = 0;
        uint64_t bytes = 0;
        ConversionError error;

        void add(const ConversionError& one, uint64_t size) {
            ++tensors;
            bytes += size;
            error.error += one.error;
            error.norm += one.norm;
        }
    };

    const QuantizeArguments& arguments_;
    const Model& model_;
    const Conversion conversion_;
    const std::string header_;
    ThreadPool pool_;
    Importances importances_;
    size_t finished_ = 0;             // tensors in the file when write() ended
    std::map<size_t, uint64_t> sums_; // of the tensors that this run wrote
    std::map<GgmlType, Errors> errors_;
};

// Whether the command reads the file, or a directory of Hugging Face that it reads has it.
// Names are not enough: links and other spellings lead to the same file. equivalent() asks the system, and identities are
// compared for the files that are mapped.
bool is_input(const fs::path& path, const QuantizeArguments& a, const Model& model) {
    std::error_code error;
    const fs::path in = utf8_path(a.in), parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    for (const fs::path& input : {in, utf8_path(a.imatrix), utf8_path(a.divergence.file)})
        if (fs::equivalent(path, input, error)) return true;
    if (!fs::is_regular_file(path, error)) return false;
    const std::string ending = utf8_text(path.extension());
    if ((ending == ".json" || ending == ".safetensors") && fs::equivalent(parent, in, error)) return true;
    if (fs::file_size(path, error) == 0) return false;
    const FileIdentity found = MappedFile(path).identity();
    return std::ranges::any_of(model.file.identities(), [&](const FileIdentity& mapped) {
        return mapped.device == found.device && mapped.number == found.number;
    });
}

// Throws Error if the new file, or one of the files beside it (PartFile::names), is read as an input.
void refuse_inputs(const QuantizeArguments& a, const Model& model) {
    for (const fs::path& path : PartFile::names(utf8_path(a.out)))
        if (is_input(path, a, model))
            fail("{} would be written over, which is read: name another OUT", printable(utf8_text(path), 300));
}

int run(const QuantizeArguments& given) {
    QuantizeArguments arguments = given;
    if (arguments.threads == 0) arguments.threads = arguments.nthreads;
    const Mix* mix = find_mix(arguments.type);
    if (mix == nullptr)
        throw UsageError(fmt::format("type: it must be one of {}, not {}", mix_names(), printable(arguments.type, 60)));
    Console console = arguments.console.console();
    const fs::path in = utf8_path(arguments.in), out = utf8_path(arguments.out);
    const Model model = load(in);
    for (const std::string& note : model.notes) write_error(fmt::format("tq-run: {}\n", note));
    refuse_inputs(arguments, model);
    const MixOptions mixed{arguments.pure, named_type(arguments.output_type), named_type(arguments.embedding_type)};
    Conversion conversion = plan_conversion(model, {mix, mixed, arguments.allow_requantize});
    for (const std::string& note : conversion.notes) write_error(fmt::format("tq-run: {}\n", note));
    QuantizedFile file(arguments, model, std::move(conversion));
    if (arguments.dry_run) {
        write_text(file.heading());
        return 0;
    }
    std::optional<MeasuredText> text;
    if (!arguments.divergence.file.empty()) text = divergence_text(arguments.divergence, model.tokenizer);
    catch_interrupts();
    if (!file.write(console)) {
        write_error(fmt::format("tq-run: {}\n", file.where_stopped()));
        return 130;
    }
    write_text(file.report());
    if (!text) return 0;
    return measure_divergence(out, in, *text, arguments.divergence, arguments.threads, console);
}

} // namespace

void add_quantize(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, QuantizeArguments& a) {
        const auto file = [&](const char* name, std::string& value, const char* value_name, const char* help) {
            add_option(command, name, value, value_name, help).required().values("FILE").check([](std::string& text) {
                return std::string(text.empty() ? "it is empty: name a file" : "");
            });
        };
        file("in", a.in, "IN", "GGUF file, or a Hugging Face directory in F32, F16 or BF16");
        file("out", a.out, "OUT", "GGUF file to write; until it is whole it is OUT.part");
        add_option(command, "type", a.type, "TYPE", "one of " + mix_names()).required().values(mix_names());
        add_option(command, "nthreads", a.nthreads, "[N]", "the same as --threads").transform(thread_number());
        add_option(command, "-t,--threads", a.threads, "N", "threads; default: all cores").transform(thread_number());
        add_flag(command, "--allow-requantize", a.allow_requantize,
                 "quantise matrices again that are quantised already, with the errors of both");
        add_flag(command, "--pure", a.pure, "all matrices in the type's own format, without a mix");
        const auto type = [&](const char* name, std::string& value, const char* help) {
            add_option(command, name, value, "TYPE", help).one_of(encoded_types()).in_lower_case();
        };
        type("--output-tensor-type", a.output_type, "format of output.weight, or of the embedding that stands in for it");
        type("--token-embedding-type", a.embedding_type, "format of token_embd.weight");
        add_option(command, "--imatrix", a.imatrix, "FILE",
                   "importances of columns, which llama-imatrix measured: errors of K formats count by them")
            .values("FILE");
        add_flag(command, "--overwrite", a.overwrite, "replace OUT where it exists");
        add_flag(command, "--dry-run", a.dry_run, "say how large the file would be, and write nothing");
        add_flags(command, a.divergence);
        add_flags(command, a.console);
    };
    add_command<QuantizeArguments>(app, action, "quantize", "Write a model as a GGUF file in other weight formats", flags, run);
}

} // namespace tq
