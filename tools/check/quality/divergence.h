// The change that another cache makes to a model's predictions: logits against those of a reference, token by token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq::quality {

// The divergence at one token: `next` is the text's next token. Natural logarithms; computed in double.
struct Divergence {
    double loss = 0, reference_loss = 0; // -log p(next)
    double kl = 0;                       // KL(reference || p), at least 0
    bool same_top = false;               // the most probable token is the same one
};

// -log p(next), from logits [vocab_size].
double loss(std::span<const float> logits, uint32_t next);

// logits, reference: [vocab_size], finite. An infinite KL divergence is impossible: softmax gives every token a probability.
Divergence divergence(std::span<const float> logits, std::span<const float> reference, uint32_t next);

// A mean over tokens and its standard error, which assumes independent tokens (neighbours are not quite independent).
struct Estimate {
    double value = 0, error = 0;
};
Estimate mean(std::span<const double> values); // of none: 0

struct Summary {
    uint64_t tokens = 0;
    Estimate perplexity, reference_perplexity; // exp of the mean loss; the error by the derivative of exp
    Estimate loss_change;                      // mean of loss - reference_loss: the log of the ratio of the perplexities
    Estimate kl, same_top;                     // same_top: a share
    double kl_median = 0, kl_99 = 0, kl_max = 0;
};

// All zeros if there are no tokens.
Summary summarise(std::span<const Divergence> tokens);

} // namespace tq::quality
