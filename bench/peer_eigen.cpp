// Float32 attention of one head as a user of Eigen would write it: dequantise, two matrix products
// and a softmax per block of queries, in Eigen's expressions throughout.
#include <Eigen/Core>

#include "isa.hpp"

namespace {

using Eigen::Index;
using qattn::bench::kPeerRowsMax;
using qattn::bench::PeerHead;
using qattn::bench::whole_vectors;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Map<Matrix, Eigen::AlignedMax>;
using Vector = Eigen::Map<Eigen::ArrayXf, Eigen::AlignedMax>;
using Tail = Eigen::Map<Eigen::ArrayXf>;
using Strided = Eigen::OuterStride<Eigen::Dynamic>;
using Scores = Eigen::Map<Matrix, Eigen::AlignedMax, Strided>;
using Tokens =
    Eigen::Map<const Eigen::Matrix<std::int8_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
               Strided>;

/// Softmax of each row over its visible keys, without the division; hidden keys become 0. Rows are
/// handled in whole vectors, since Eigen computes what is left of one a scalar at a time.
inline void exponentials(Scores& scores, Index first_query, bool causal, float* row_sum) {
  const Index keys = scores.cols();
  for (Index row = 0; row < scores.rows(); ++row) {
    const Index visible = causal ? first_query + row + 1 : keys;
    const Index padded = whole_vectors(visible);
    float* data = scores.data() + row * scores.outerStride();
    // Any ordinary value does for the hidden keys; minus infinity would come out as a subnormal.
    Tail(data + visible, padded - visible).setConstant(data[0]);
    Vector seen(data, padded);
    seen = (seen - seen.maxCoeff()).exp();
    Tail(data + visible, scores.outerStride() - visible).setZero();
    row_sum[row] = seen.sum();
  }
}

}  // namespace

extern "C" void QATTN_BENCH_FUNCTION(const PeerHead& head) {
  const Index seq = head.seq;
  const Index dim = head.head_dim;
  float* scratch = head.scratch;
  const auto take = [&scratch](Index rows, Index cols) {
    float* data = scratch;
    scratch += whole_vectors(rows * cols);
    return data;
  };
  const auto tokens = [&head, dim](const std::int8_t* data, Index first, Index rows) {
    return Tokens(data + first * head.token_stride, rows, dim, Strided(head.token_stride));
  };
  const Index block = qattn::bench::peer_rows(seq);
  float row_sum[kPeerRowsMax];
  Block keys(take(seq, dim), seq, dim);
  Block values(take(seq, dim), seq, dim);
  float* query_data = take(block, dim);
  float* out_data = take(block, dim);
  float* score_data = take(block, whole_vectors(seq));
  keys = tokens(head.k, 0, seq).cast<float>();
  values = tokens(head.v, 0, seq).cast<float>() * head.v_scale;

  for (Index first = 0; first < seq; first += block) {
    const Index rows = block < seq - first ? block : seq - first;
    const Index visible = head.causal ? first + rows : seq;
    Block queries(query_data, rows, dim);
    Scores scores(score_data, rows, visible, Strided(whole_vectors(visible)));
    Block sums(out_data, rows, dim);
    queries = tokens(head.q, first, rows).cast<float>() * head.score_factor;
    scores.noalias() = queries * keys.topRows(visible).transpose();
    if (head.softmax) exponentials(scores, first, head.causal, row_sum);
    sums.noalias() = scores * values.topRows(visible);
    Eigen::Map<Matrix, 0, Strided> out(head.out + first * head.token_stride, rows, dim,
                                       Strided(head.token_stride));
    if (head.softmax) {
      out = sums.array().colwise() / Eigen::Map<Eigen::ArrayXf>(row_sum, rows);
    } else {
      out = sums;
    }
  }
}
