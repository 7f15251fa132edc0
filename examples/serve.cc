// Translates ids with an export from ids to ids, in C++.
//
//     t2t export --output_dir runs/base --export_dir served/ids --format savedmodel_ids
//     TF=$(python -c "import tensorflow as tf; print(tf.sysconfig.get_lib())")
//     g++ -std=c++17 -w examples/serve.cc -I$TF/include -L$TF -Wl,-rpath,$TF \
//         -Wl,--no-as-needed -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2 \
//         -o serve
//     ./serve served/ids 57 1088 6 1
//
// The arguments are the source's ids, EOS (1) last; it prints those of the best output
// and its score. The vocabularies in `served/ids/assets.extra` map texts to ids and
// back (the SentencePiece library has a C++ interface).

#include <cstdlib>
#include <iostream>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"

int Fail(const absl::Status& status) {
  std::cerr << status << std::endl;
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: serve EXPORT_DIR ID ... 1" << std::endl;
    return 2;
  }
  tensorflow::SavedModelBundleLite model;
  absl::Status status = tensorflow::LoadSavedModel({}, {}, argv[1], {"serve"}, &model);
  if (!status.ok()) return Fail(status);

  // A batch of one source: ids [B, S].
  const int length = argc - 2;
  tensorflow::Tensor ids(tensorflow::DT_INT32, {1, length});
  for (int i = 0; i < length; ++i) ids.matrix<int>()(0, i) = std::atoi(argv[i + 2]);

  // The signature has the names of the tensors to feed and to fetch.
  const auto& signature = model.GetSignatures().at("translate_ids");
  std::vector<tensorflow::Tensor> outputs;
  status = model.GetSession()->Run({{signature.inputs().at("ids").name(), ids}},
                                   {signature.outputs().at("ids").name(),
                                    signature.outputs().at("lengths").name(),
                                    signature.outputs().at("scores").name()},
                                   {}, &outputs);
  if (!status.ok()) return Fail(status);

  // ids [B, n, T], lengths [B, n] and scores [B, n]: the best output is the first.
  const int tokens = outputs[1].matrix<int>()(0, 0);
  for (int i = 0; i < tokens; ++i) std::cout << outputs[0].tensor<int, 3>()(0, 0, i) << " ";
  std::cout << std::endl << outputs[2].matrix<float>()(0, 0) << std::endl;
}
