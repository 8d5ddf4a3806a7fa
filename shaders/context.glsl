// Where the model is: this step's `tokens` tokens stand at positions position, position + 1, ... The rotary table holds
// (cos, sin) of position p and channel pair i at rope[p * head_dim / 2 + i].
#define CONTEXT_AT(n) layout(binding = n) readonly buffer Context { uint position; uint tokens; uint unused0; uint unused1; vec2 rope[]; }
