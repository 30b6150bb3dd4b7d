"""Estimators: from noisy measurements of a table to a sampler of its rows.

Each step takes what was released, with the deviation of its noise, and the step before:

1. `trees` (`Trees`, `TreesRead`): hierarchical histograms of all columns, one release.
2. `fine_tables`: consistent histograms from them (Hay et al. 2010), by `smooth_laws`
   where noise hides single counts (`ordered_counts`, `smooth_law`, `law_fit`,
   `law_ends`); `spikes`: atoms, numbers that many people share; `narrow_columns`: laws
   within a few cells that have everybody.
3. `merged_levels` (`bought_levels`): from these the levels on which pairs are measured;
   `fitted_levels`: fewer where a fit cannot take all, and `absent_levels`: those that
   nobody seems to have.
4. `noisy_tables` (`read_tables`): total, 1-way and 2-way marginals, each with its
   precision, by least squares and by the priors (empirical Bayes) of `priors`,
   `pair_laws` and `empty_cells`.
5. `fit_gram` (`fit_gram`): a mixture of products (latent class model) fitted to those
   by gradient descent on `loss`, with `target` for a column to predict and
   `given_rules` for public rules.
6. `mixture` (`MixtureOfProducts.levels`): the sampler.

`strongest` chooses what is measured once more between 4 and 5. `inversion` has other
distributions with the interface of 6. All of it is post-processing: no rows, no
privacy, no messages.
"""
